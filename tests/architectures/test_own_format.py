"""Our own format: round trips, and damage noticed."""

import errno
import hashlib
import json
import os
import random
import re

import pytest
import safetensors.torch
import torch

from smoothcert.architectures.base import ARCHITECTURES
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.errors import ModelError, OutputError
from smoothcert.files import unsealed
from tests.architectures.examples import CIFAR_MEAN, CIFAR_STD, SPEC, same_state


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


class TestOwnFormat:
    @pytest.mark.parametrize(
        "architecture",
        [
            pytest.param(name, marks=[pytest.mark.slow] * (name in ("resnet50", "cifar_resnet110")))
            for name in ARCHITECTURES.names()
        ],
    )
    def test_round_trip_is_exact(self, architecture, tmp_path):
        spec = ModelSpec(architecture, (3, 32, 32), ("cat", "dog"), CIFAR_MEAN, CIFAR_STD)
        model = initialise(spec, seed=3)
        model(torch.rand(4, 3, 32, 32))  # moves the running statistics off their initial values
        written = save_model(model, spec, tmp_path / "new" / "folder")
        assert written == tmp_path / "new" / "folder" / "model.safetensors"
        loaded, loaded_spec = load_model(tmp_path / "new" / "folder")
        assert loaded_spec == spec
        assert same_state(loaded, model)
        assert not loaded.training
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(loaded(x), model.eval()(x))
        # pytest keeps the folders of past sessions, and some of these files have 100 MB.
        written.unlink()

    def test_a_file_of_another_name(self, tmp_path):
        model = initialise(SPEC, seed=1)
        assert save_model(model, SPEC, tmp_path / "best.safetensors") == tmp_path / "best.safetensors"
        assert names_in(tmp_path) == ["best.json", "best.safetensors"]
        assert same_state(load_model(str(tmp_path / "best.safetensors"))[0], model)

    def test_json_holds_spec_version_and_hash(self, tmp_path):
        model = initialise(SPEC, seed=1).to(memory_format=torch.channels_last)
        save_model(model, SPEC, tmp_path)
        description = unsealed(json.loads((tmp_path / "model.json").read_text()))
        assert description == {
            "format_version": 1,
            "spec": SPEC.to_json(),
            "weights_sha256": hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest(),
        }
        before = torch.get_rng_state()
        assert same_state(load_model(tmp_path)[0], model)
        assert torch.equal(torch.get_rng_state(), before)
        newer = initialise(SPEC, seed=2)
        save_model(newer, SPEC, tmp_path)
        assert same_state(load_model(tmp_path)[0], newer)
        assert names_in(tmp_path) == ["model.json", "model.safetensors"]

    def test_failed_save_leaves_the_old_model_and_no_rubbish(self, tmp_path, monkeypatch):
        older = initialise(SPEC, seed=1)
        save_model(older, SPEC, tmp_path)

        def disk_full(descriptor):
            raise OSError(errno.ENOSPC, "ENOSPC")

        monkeypatch.setattr(os, "fsync", disk_full)
        with pytest.raises(OutputError, match=r"model\.safetensors.*ENOSPC"):
            save_model(initialise(SPEC, seed=2), SPEC, tmp_path)
        assert names_in(tmp_path) == ["model.json", "model.safetensors"]
        assert same_state(load_model(tmp_path)[0], older)

    def test_crash_between_the_two_files_is_noticed(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        old_json = (tmp_path / "model.json").read_bytes()
        save_model(initialise(SPEC, seed=2), SPEC, tmp_path)
        (tmp_path / "model.json").write_bytes(old_json)
        with pytest.raises(ModelError, match="SHA-256"):
            load_model(tmp_path)

    def test_model_that_is_not_of_the_spec_is_not_saved(self, tmp_path):
        other = ModelSpec("small-cnn", (3, 8, 8), ("a", "b", "c"), SPEC.mean, SPEC.std)
        with pytest.raises(ModelError, match=r"1\.fc2\.weight.*\(3, 128\) float32.*\(2, 128\) float32"):
            save_model(initialise(other, seed=0), SPEC, tmp_path)
        with pytest.raises(ModelError, match=r"1\.conv1\.weight.*float64.*float32"):
            save_model(initialise(SPEC, seed=0).double(), SPEC, tmp_path)
        assert names_in(tmp_path) == []

    def test_what_the_caller_says_must_agree_with_the_file(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        load_model(tmp_path, architecture="small-cnn", input_shape=(3, 8, 8))
        with pytest.raises(ModelError, match=r"architecture.*'small-cnn'.*'lenet'"):
            load_model(tmp_path, architecture="lenet")
        with pytest.raises(ModelError, match=r"input_shape.*\(3, 8, 8\).*\(1, 8, 8\)"):
            load_model(tmp_path, input_shape=(1, 8, 8))


class TestDamagedFiles:
    @pytest.fixture
    def saved(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        return tmp_path

    def rewrite(self, folder, *, weights=None, description=None):
        """Change either file and keep their hashes in agreement, as earlier versions wrote them: without a checksum."""
        weights_path, json_path = folder / "model.safetensors", folder / "model.json"
        if weights is not None:
            weights_path.write_bytes(weights)
        current = json.loads(json_path.read_text())
        del current["checksum"]
        current["weights_sha256"] = hashlib.sha256(weights_path.read_bytes()).hexdigest()
        json_path.write_text(json.dumps({**current, **(description or {})}))

    def refusal(self, path, **options):
        with pytest.raises(ModelError) as caught:
            load_model(path, **options)
        return str(caught.value)

    def test_what_is_no_model(self, saved, tmp_path_factory):
        empty = tmp_path_factory.mktemp("empty")
        for path, named in (
            (empty / "nowhere", ()),
            (empty, ("model.safetensors",)),
            (saved / "model.json", (".safetensors", ".pth", ".pt")),
        ):
            message = self.refusal(path)
            assert all(part in message for part in (str(path), *named))

    @pytest.mark.parametrize(
        ("name", "damaged", "named"),
        [
            ("model.safetensors", lambda old: old[:1000], r"model\.safetensors.*SHA-256"),
            ("model.safetensors", lambda old: old[:-1] + bytes([old[-1] ^ 1]), "SHA-256"),
            (
                "model.json",
                lambda old: old.replace(str(SPEC.mean[0]).encode(), b"0.75"),
                r"model\.json.*checksum",
            ),
            ("model.json", None, r"model\.safetensors.*model\.json"),
            *(
                ("model.json", content, r"model\.json")
                for content in (b"{", b"", b"\xff\xfe\x00", b"[]", b"{}", b'{"format_version": 1, "spec": 3}')
            ),
        ],
    )
    def test_damage_is_named(self, saved, name, damaged, named):
        path = saved / name
        content = damaged(path.read_bytes()) if callable(damaged) else damaged
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert re.search(f"{re.escape(str(saved))}.*{named}", "/" + self.refusal(saved / "model.safetensors"))

    def test_a_bit_flipped_anywhere_gives_the_same_model_or_none(self, saved):
        before = load_model(saved)
        draws, refused = random.Random(5), 0
        for name, tries in (("model.json", 150), ("model.safetensors", 20)):
            path = saved / name
            content = path.read_bytes()
            for _ in range(tries):
                flipped = bytearray(content)
                flipped[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
                path.write_bytes(flipped)
                try:
                    model, spec = load_model(saved)
                except ModelError:
                    refused += 1
                    continue
                assert spec == before[1]
                assert same_state(model, before[0])
            path.write_bytes(content)
        assert refused > 150  # the rest fell on spaces

    def test_hash_agrees_but_it_is_no_safetensors_file(self, saved):
        for content in (b"", b"rubbish", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"{}" + b"\0"):
            save_model(initialise(SPEC, seed=1), SPEC, saved)
            self.rewrite(saved, weights=content)
            message = self.refusal(saved)
            assert str(saved / "model.safetensors") in message
            assert "SHA-256" not in message

    def test_missing_unexpected_and_misshapen_weights(self, saved):
        state = safetensors.torch.load((saved / "model.safetensors").read_bytes())
        kept = {
            name: values for name, values in state.items() if name not in ("1.fc1.bias", "1.conv2.weight")
        }
        self.rewrite(saved, weights=safetensors.torch.save(kept))
        message = self.refusal(saved)
        for name in ("model.safetensors", "1.conv2.weight", "1.fc1.bias"):
            assert name in message
        assert "1.conv1.weight" not in message
        save_model(initialise(SPEC, seed=1), SPEC, saved)
        other = state | {"1.fc1.bias": torch.zeros(5), "1.extra": torch.zeros(1)}
        self.rewrite(saved, weights=safetensors.torch.save(other))
        assert re.search(r"1\.fc1\.bias.*\(5,\) float32.*\(128,\) float32.*1\.extra", self.refusal(saved))

    def test_descriptions_of_other_versions_and_that_make_no_sense(self, saved):
        self.rewrite(saved)
        assert load_model(saved)[1] == SPEC, "one of an earlier version"
        for changes, named in (
            ({"architecture": "transformer"}, "architecture.*'transformer'"),
            ({"input_shape": [3, 2, 2]}, r"\(3, 2, 2\)"),
            ({"classes": []}, "classes"),
            ({"std": [0.2, 0.0, 0.4]}, r"\bstd\b.*\b0\.0"),
            ({"mean": None}, r"\bmean\b.*\bstd\b.*None.*\(0\.2, 0\.3, 0\.4\)"),
        ):
            save_model(initialise(SPEC, seed=1), SPEC, saved)
            self.rewrite(saved, description={"spec": SPEC.to_json() | changes})
            assert re.search(f"{re.escape(str(saved))}.*{named}", self.refusal(saved))
        save_model(initialise(SPEC, seed=1), SPEC, saved)
        self.rewrite(saved, description={"format_version": 2})
        assert re.search(r"model\.json.*format_version.*\b2\b.*\b1\b", self.refusal(saved))
