"""What save_model writes comes back bit for bit."""

import errno
import hashlib
import json
import os

import pytest
import torch

from smoothcert.architectures import ARCHITECTURES, ModelSpec, initialise
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.checksums import unsealed
from smoothcert.errors import ModelError, OutputError
from tests.architectures.weights.examples import CIFAR_MEAN, CIFAR_STD, SPEC, same_state


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


class TestOwnFormat:
    @pytest.mark.parametrize("architecture", ARCHITECTURES.names())
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

    def test_memory_format_is_no_obstacle(self, tmp_path):
        model = initialise(SPEC, seed=1).to(memory_format=torch.channels_last)
        save_model(model, SPEC, tmp_path)
        assert same_state(load_model(tmp_path)[0], model)

    def test_json_holds_spec_version_and_hash(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        description = unsealed(json.loads((tmp_path / "model.json").read_text()))
        assert description == {
            "format_version": 1,
            "spec": SPEC.to_json(),
            "weights_sha256": hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest(),
        }

    def test_saving_over_an_older_model(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
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

    def test_loading_leaves_the_global_random_state_alone(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        before = torch.get_rng_state()
        load_model(tmp_path)
        assert torch.equal(torch.get_rng_state(), before)

    def test_what_the_caller_says_must_agree_with_the_file(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        load_model(tmp_path, architecture="small-cnn", input_shape=(3, 8, 8))
        with pytest.raises(ModelError, match=r"architecture.*'small-cnn'.*'lenet'"):
            load_model(tmp_path, architecture="lenet")
        with pytest.raises(ModelError, match=r"input_shape.*\(3, 8, 8\).*\(1, 8, 8\)"):
            load_model(tmp_path, input_shape=(1, 8, 8))
