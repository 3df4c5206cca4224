"""Every public function of the package goes through pickle, copy, partial and a process that is started by spawn."""

import copy
import functools
import importlib
import io
import multiprocessing
import pickle
import unittest

import fa2_attn as fa2

try:
    import torch
except ImportError:
    torch = None

MODULES = ("fa2_attn", "fa2_attn.torch", "fa2_attn.flash_attn", "fa2_attn.bert_padding", "fa2_attn.transformers")


def functions():
    """{name: function} of all public names that can be called, of the modules that can be imported here."""
    found = {}
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "transformers"):
                raise
            continue
        found.update({f"{name}.{public}": getattr(module, public) for public in module.__all__
                      if callable(getattr(module, public))})
    return found


def compare(given):
    """In the other process: the names of those that are other functions there."""
    here = functions()
    return [name for name, function in given.items() if function is not here[name]]


class Functions(unittest.TestCase):
    def test_are_there(self):
        self.assertLessEqual({"fa2_attn.attention", "fa2_attn.attention_backward", "fa2_attn.tune", "fa2_attn.explain",
                              "fa2_attn.prepare"},
                             set(functions()))
        if torch is not None:
            self.assertLessEqual({"fa2_attn.torch.sdpa", "fa2_attn.torch.replace_sdpa", "fa2_attn.flash_attn.flash_attn_func",
                                  "fa2_attn.bert_padding.pad_input"}, set(functions()))

    def test_pickle_and_copy(self):
        for name, function in functions().items():
            with self.subTest(name):
                for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                    self.assertIs(pickle.loads(pickle.dumps(function, protocol)), function)
                self.assertIs(copy.copy(function), function)
                self.assertIs(copy.deepcopy([function])[0], function)
                bound = functools.partial(function, causal=True)
                for carried in (pickle.loads(pickle.dumps(bound)), copy.deepcopy(bound)):
                    self.assertIs(carried.func, function)
                    self.assertEqual(carried.keywords, {"causal": True})

    def test_spawn(self):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            self.assertEqual(pool.apply(compare, (functions(),)), [])

    def test_errors(self):
        error = fa2.Error("no driver")
        error.status = "FA2_E_NO_DRIVER"
        carried = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(carried), carried.args, carried.status), (fa2.Error, error.args, error.status))

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_models(self):
        """A model that has them as attributes is saved and loaded, also while fa2 stands in the place of sdpa."""
        model = torch.nn.Linear(2, 2)
        model.attend = functools.partial(functions()["fa2_attn.torch.sdpa"], is_causal=True)
        with functions()["fa2_attn.torch.replace_sdpa"]():
            model.replaced = torch.nn.functional.scaled_dot_product_attention
            file = io.BytesIO()
            torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        self.assertIs(loaded.attend.func, model.attend.func)
        self.assertIs(loaded.replaced, model.replaced)
        file = io.BytesIO()
        torch.save({"attend": model.attend.func}, file)
        file.seek(0)
        with torch.serialization.safe_globals([model.attend.func]):
            self.assertIs(torch.load(file, weights_only=True)["attend"], model.attend.func)


if __name__ == "__main__":
    unittest.main()
