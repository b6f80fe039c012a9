"""A saved model that can't be loaded says why."""

import hashlib
import json
import random
import re

import pytest
import safetensors.torch
import torch

from smoothcert.architectures import initialise
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.errors import ModelError
from tests.architectures.weights.examples import SPEC, same_state


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

    def test_no_such_path(self, tmp_path):
        assert str(tmp_path / "nowhere") in self.refusal(tmp_path / "nowhere")

    def test_directory_without_a_model(self, tmp_path):
        message = self.refusal(tmp_path)
        assert str(tmp_path) in message
        assert "model.safetensors" in message

    def test_other_kind_of_file(self, saved):
        message = self.refusal(saved / "model.json")
        assert str(saved / "model.json") in message
        for suffix in (".safetensors", ".pth", ".pt"):
            assert suffix in message

    def test_cut_short(self, saved):
        path = saved / "model.safetensors"
        path.write_bytes(path.read_bytes()[:1000])
        message = self.refusal(saved)
        assert "model.safetensors" in message
        assert "SHA-256" in message

    def test_one_bit_changed(self, saved):
        path = saved / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert "SHA-256" in self.refusal(saved)

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

    def test_a_number_of_the_spec_changed(self, saved):
        path = saved / "model.json"
        path.write_text(path.read_text().replace(str(SPEC.mean[0]), "0.75"))
        message = self.refusal(saved)
        assert "model.json" in message
        assert "checksum" in message

    def test_a_model_of_an_earlier_version_is_loaded(self, saved):
        self.rewrite(saved)
        assert load_model(saved)[1] == SPEC

    @pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"{}" + b"\0"])
    def test_hash_agrees_but_it_is_no_safetensors_file(self, saved, content):
        self.rewrite(saved, weights=content)
        message = self.refusal(saved)
        assert str(saved / "model.safetensors") in message
        assert "SHA-256" not in message

    def test_missing_weights(self, saved):
        state = safetensors.torch.load_file(saved / "model.safetensors")
        del state["1.fc1.bias"], state["1.conv2.weight"]
        self.rewrite(saved, weights=safetensors.torch.save(state))
        message = self.refusal(saved)
        assert "model.safetensors" in message
        assert "1.conv2.weight" in message
        assert "1.fc1.bias" in message
        assert "1.conv1.weight" not in message

    def test_unexpected_and_misshapen_weights(self, saved):
        state = safetensors.torch.load_file(saved / "model.safetensors")
        state["1.fc1.bias"] = torch.zeros(5)
        state["1.extra"] = torch.zeros(1)
        self.rewrite(saved, weights=safetensors.torch.save(state))
        assert re.search(r"1\.fc1\.bias.*\(5,\) float32.*\(128,\) float32.*1\.extra", self.refusal(saved))

    def test_no_json(self, saved):
        (saved / "model.json").unlink()
        message = self.refusal(saved / "model.safetensors")
        assert str(saved / "model.safetensors") in message
        assert "model.json" in message

    @pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe\x00"])
    def test_json_that_is_none(self, saved, content):
        (saved / "model.json").write_bytes(content)
        assert str(saved / "model.json") in self.refusal(saved)

    @pytest.mark.parametrize("content", ["[]", "{}", '{"format_version": 1, "spec": 3}'])
    def test_json_about_something_else(self, saved, content):
        (saved / "model.json").write_text(content)
        assert str(saved / "model.json") in self.refusal(saved)

    def test_format_of_a_later_version(self, saved):
        self.rewrite(saved, description={"format_version": 2})
        assert re.search(r"model\.json.*format_version.*\b2\b.*\b1\b", self.refusal(saved))

    @pytest.mark.parametrize(
        ("field", "value", "named"),
        [
            ("architecture", "transformer", "architecture.*'transformer'"),
            ("input_shape", [3, 2, 2], r"\(3, 2, 2\)"),
            ("classes", [], "classes"),
            ("std", [0.2, 0.0, 0.4], r"\bstd\b.*\b0\.0"),
            ("mean", None, r"\bmean\b.*\bstd\b.*None.*\(0\.2, 0\.3, 0\.4\)"),
        ],
    )
    def test_spec_that_makes_no_sense(self, saved, field, value, named):
        self.rewrite(saved, description={"spec": {**SPEC.to_json(), field: value}})
        assert re.search(f"{re.escape(str(saved))}.*{named}", self.refusal(saved))
