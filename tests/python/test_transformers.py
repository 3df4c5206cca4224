"""fa2_attn.transformers: unmodified models with random weights against transformers' eager attention, on a GPU; and
what goes to sdpa, without one."""

import copy
import itertools
import re
import types
import unittest
import unittest.mock
import warnings

try:
    import torch
    import transformers
    import fa2_attn.transformers
    HAS_TRANSFORMERS, HAS_GPU = True, torch.cuda.is_available()
except ImportError:
    HAS_TRANSFORMERS = HAS_GPU = False
try:
    import host
except ImportError:
    host = None

TEXT = {"vocab_size": 500, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 4, "max_position_embeddings": 512}
GROUPED = {**TEXT, "num_key_value_heads": 2}


MODELS = ("llama", "mistral_window", "gemma2_softcap_windows", "bert", "bert_padding", "vit", "whisper_cross_attention",
          "gpt_oss_sinks")
GENERATING = ("llama", "mistral_window", "gemma2_softcap_windows", "gpt_oss_sinks")


def model_of(name):
    """(class, configuration, inputs)."""
    t = transformers
    ids = torch.randint(3, 500, (2, 90), generator=torch.Generator().manual_seed(1)).cuda()
    padding = torch.ones_like(ids)
    padding[1, 60:] = 0
    if name == "llama":
        return t.LlamaForCausalLM, t.LlamaConfig(**GROUPED), {"input_ids": ids}
    if name == "mistral_window":
        return t.MistralForCausalLM, t.MistralConfig(**GROUPED, sliding_window=24), {"input_ids": ids}
    if name == "gemma2_softcap_windows":
        return t.Gemma2ForCausalLM, t.Gemma2Config(
            **GROUPED, head_dim=64, sliding_window=32, attn_logit_softcapping=20.0,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"]), {"input_ids": ids}
    if name == "bert":
        return t.BertModel, t.BertConfig(**TEXT), {"input_ids": ids}
    if name == "bert_padding":
        return t.BertModel, t.BertConfig(**TEXT), {"input_ids": ids, "attention_mask": padding}
    if name == "vit":
        pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2)).cuda()
        return t.ViTModel, t.ViTConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                                       image_size=64, patch_size=8), {"pixel_values": pixels}
    if name == "whisper_cross_attention":
        sound = torch.randn(2, 16, 300, generator=torch.Generator().manual_seed(3)).cuda()
        return (t.WhisperForConditionalGeneration,
                t.WhisperConfig(vocab_size=500, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, num_mel_bins=16,
                                max_source_positions=150, max_target_positions=120, pad_token_id=0, bos_token_id=1,
                                eos_token_id=2, decoder_start_token_id=1),
                {"input_features": sound, "decoder_input_ids": ids})
    return t.GptOssForCausalLM, t.GptOssConfig(**GROUPED, head_dim=64, sliding_window=32, num_local_experts=2,
                                               num_experts_per_tok=2), {"input_ids": ids}


def make(kind, config, dtype, attention, weights=None, device="cuda"):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind._from_config(copy.deepcopy(config), attn_implementation=attention)
    if weights is not None:
        model.load_state_dict(weights)
    return model.eval().to(device, dtype)


def answers(model, inputs, gradients):
    """The output and, if they are wanted, all parameters' gradients, in fp32."""
    inputs = {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    with torch.set_grad_enabled(gradients):
        out = model(**inputs, use_cache=False) if "pixel_values" not in inputs else model(**inputs)
        out = out.logits if hasattr(out, "logits") else out.last_hidden_state
        if "attention_mask" in inputs:
            out = out * inputs["attention_mask"][..., None]  # what padding says is nobody's concern
        found = {"out": out.detach().float()}
        if gradients:
            weights = torch.linspace(-1, 1, out.numel(), device="cuda").reshape(out.shape)
            (out.float() * weights).sum().backward()
            found.update((name, p.grad.float()) for name, p in model.named_parameters() if p.grad is not None)
    return found


def errors_of_kinds(answer, exact):
    """The greatest error of each kind of tensor, all layers together."""
    errors = {}
    for key, value in answer.items():
        kind = re.sub(r"\.\d+\.", ".*.", key)
        errors[kind] = max(errors.get(kind, 0), (value - exact[key]).abs().max().item())
    return errors


@unittest.skipUnless(HAS_GPU, "transformers, PyTorch and a GPU are needed")
class Models(unittest.TestCase):
    def setUp(self):
        fa2_attn.transformers.register()

    def check_outputs_and_gradients(self, name):
        """Errors against fp32 are at most twice eager's; of gradients three times, as FlashAttention's tests have it,
        the layers' tensors of a kind together: of one alone, of two numbers, eager's may be exact by luck."""
        kind, config, inputs = model_of(name)
        weights = make(kind, config, torch.float32, "eager").state_dict()
        for dtype in (torch.float16, torch.bfloat16):
            with self.subTest(name, dtype=dtype):
                gradients = True
                own = make(kind, config, dtype, "fa2", weights)
                try:
                    got = answers(own, inputs, True)
                except NotImplementedError as reason:
                    print(f"{name}: without gradients: {reason}")
                    gradients, got = False, answers(own, inputs, False)
                eager = answers(make(kind, config, dtype, "eager", weights), inputs, gradients)
                # both in the same rounded weights
                exact = answers(make(kind, config, dtype, "eager", weights).float(), inputs, gradients)
                allowed, found = (errors_of_kinds(answer, exact) for answer in (eager, got))
                worst = {"out": (0, ""), "gradients": (0, "")}
                for key, error in found.items():
                    group, factor = ("out", 2) if key == "out" else ("gradients", 3)
                    worst[group] = max(worst[group], (error / (factor * allowed[key] + 1e-5), key))
                print(f"{name:30} {str(dtype)[6:]:9}", *(f"{group} {value:.3f} {key}" for group, (value, key) in
                                                         worst.items()), flush=True)
                self.assertLessEqual(max(value for value, _ in worst.values()), 1)

    def check_generate(self, name):
        kind, config, inputs = model_of(name)
        weights = make(kind, config, torch.float32, "eager").state_dict()
        eager, own = (make(kind, config, torch.float16, way, weights) for way in ("eager", "fa2"))
        for settings in ({}, {"cache_implementation": "static", "disable_compile": True}):
            with self.subTest(name, **settings):
                tokens = [model.generate(**inputs, max_new_tokens=24, do_sample=False, pad_token_id=0,
                                         eos_token_id=None, **settings) for model in (eager, own)]
                self.assertTrue(torch.equal(*tokens))

    def test_fallback_is_said_once(self):
        kind, config, inputs = model_of("llama")
        padding = torch.ones_like(inputs["input_ids"])
        padding[0, :7] = 0
        own = make(kind, config, torch.float16, "fa2")
        fa2_attn.transformers._said.clear()
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            for _ in range(2):
                own(**inputs, attention_mask=padding)
        self.assertLessEqual(len([one for one in said if "fa2" in str(one.message)]), 1)


# a test for each model, so that they can run side by side (each_alone.py)
for _name in MODELS:
    setattr(Models, f"test_{_name}", lambda self, name=_name: self.check_outputs_and_gradients(name))
for _name in GENERATING:
    setattr(Models, f"test_generate_{_name}", lambda self, name=_name: self.check_generate(name))


@unittest.skipUnless(HAS_TRANSFORMERS, "transformers and PyTorch are needed")
class Fallback(unittest.TestCase):
    """What fa2 does not do is right nevertheless. Without a GPU: on the host everything goes to sdpa."""

    def setUp(self):
        fa2_attn.transformers.register()
        self.ids = torch.randint(3, 500, (2, 90), generator=torch.Generator().manual_seed(1))

    def pair(self, kind, config):
        eager = make(kind, config, torch.float32, "eager", device="cpu")
        return eager, make(kind, config, torch.float32, "fa2", eager.state_dict(), "cpu")

    def same(self, a, b):
        self.assertLess((a - b).abs().max().item(), 1e-4)

    def test_windows(self):
        """At once, and the last 30 tokens onto a cache, where there are fewer queries than keys."""
        t = transformers
        for name, kind, config in (
                ("llama", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED)),
                ("mistral", t.MistralForCausalLM, t.MistralConfig(**GROUPED, sliding_window=24))):
            models = self.pair(kind, config)
            with self.subTest(name), torch.no_grad():
                self.same(*(model(self.ids, use_cache=False).logits for model in models))
                parts = []
                for model in models:
                    cache = model(self.ids[:, :60], use_cache=True).past_key_values
                    parts.append(model(self.ids[:, 60:], past_key_values=cache).logits)
                self.same(*parts)
            for settings in ({}, {"cache_implementation": "static", "disable_compile": True}):
                with self.subTest(name, **settings):
                    self.assertTrue(torch.equal(*(
                        model.generate(input_ids=self.ids, max_new_tokens=8, do_sample=False, pad_token_id=0,
                                       eos_token_id=None, **settings) for model in models)))

    def test_padding(self):
        t = transformers
        padding = torch.ones_like(self.ids)
        padding[1, 60:] = 0
        for name, kind, config in (
                ("bert", t.BertModel, t.BertConfig(**TEXT)),
                ("modernbert, windows", t.ModernBertModel,
                 t.ModernBertConfig(**TEXT, local_attention=24, pad_token_id=0))):
            models = self.pair(kind, config)
            for mask in (None, padding):
                with self.subTest(name, padding=mask is not None), torch.no_grad():
                    self.same(*(model(self.ids, attention_mask=mask).last_hidden_state * padding[..., None]
                                for model in models))

    def test_masks(self):
        """The mask that is handed on, element by element."""
        for queries, keys, bounds, is_causal, window in itertools.product(
                (1, 5, 9), (9,), (None, ((9,), (4,)), ((3, 9), (0, 9))), (False, True), (None, 3)):
            own = [(0, keys)] * 2 if bounds is None else [(0, *bound)[-2:] for bound in bounds]
            wanted = [[[[first <= j < last and (not is_causal or j <= i + last - queries)
                         and (window is None or abs(i + last - queries - j) < window)
                         for j in range(keys)] for i in range(queries)]] for first, last in own]
            got = fa2_attn.transformers._mask_of_all(torch.empty(2, 1, queries, 8), torch.empty(2, 1, keys, 8),
                                                None if bounds is None else torch.tensor(bounds)[:, None, None],
                                                is_causal, window)
            self.assertEqual(got.expand(2, -1, -1, -1).tolist(), wanted)

    def test_padding_is_looked_at(self):
        def look(*rows, first=0, count=4):
            found = fa2_attn.transformers._look_at(torch.tensor(rows), first, count)
            return found and (found.is_before, found.is_behind, found.bounds.flatten(0, 2).tolist())

        self.assertEqual(look([1, 1, 1, 1], [1, 1, 1, 1]), (True, True, [[4], [4]]))
        self.assertEqual(look([1, 1, 1, 1], [1, 1, 0, 0]), (False, True, [[4], [2]]))
        self.assertEqual(look([0, 1, 1, 1], [0, 0, 0, 1]), (True, False, [[1, 4], [3, 4]]))
        self.assertEqual(look([0, 1, 1, 0], [0, 0, 0, 0]), (False, False, [[1, 3], [0, 0]]))
        self.assertIsNone(look([1, 1, 0, 1], [1, 1, 1, 1]))
        self.assertIsNone(look([1, 1, 1, 1], first=1))
        self.assertEqual(look([0, 0, 1, 1, 1], first=1), (True, False, [[1, 4]]))

    def test_padding_of_causal_models(self):
        """Before and behind, at once and onto a cache: where a query is no padding, it is as eager has it."""
        t = transformers
        for name, kind, config in (
                ("llama", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED)),
                ("mistral", t.MistralForCausalLM, t.MistralConfig(**GROUPED, sliding_window=24))):
            models = self.pair(kind, config)
            for first, last in ((0, 60), (30, 90)):
                padding = torch.ones_like(self.ids)
                padding[1] = 0
                padding[1, first:last] = 1
                for gradients in (False, True):
                    with self.subTest(name, first=first, gradients=gradients), torch.set_grad_enabled(gradients):
                        self.same(*(model(self.ids, attention_mask=padding, use_cache=False).logits * padding[..., None]
                                    for model in models))
                if last < 90:
                    continue  # what follows a padding is nobody's text
                tokens = [model.generate(input_ids=self.ids, attention_mask=padding, max_new_tokens=6, do_sample=False,
                                         pad_token_id=0, eos_token_id=None) for model in models]
                self.assertTrue(torch.equal(*tokens))


@unittest.skipUnless(HAS_TRANSFORMERS and host, "transformers, PyTorch and the software device are needed")
class OnHost(unittest.TestCase):
    """The way to fa2's attention, not sdpa's, with kernels of the software device."""

    def setUp(self):
        host.install()
        self.addCleanup(host.remove)
        self.said = []

        refuses = fa2_attn.transformers._refusal

        def refusal(query, cache):
            return refuses(types.SimpleNamespace(dtype=query.dtype, is_cuda=True), cache)

        def fallback(reason, *unused, **others):
            self.said.append(reason)
            raise AssertionError(reason)

        for name, function in (("_refusal", refusal), ("_fallback", fallback), ("attention", host.attention)):
            patch = unittest.mock.patch.object(fa2_attn.transformers, name, function)
            patch.start()
            self.addCleanup(patch.stop)
        fa2_attn.transformers.register()
        self.ids = torch.randint(3, 500, (2, 20), generator=torch.Generator().manual_seed(1))

    def compare(self, kind, config, inputs, seen, most=2e-2, dtype=None):
        eager = make(kind, config, dtype or torch.float16, "eager", device="cpu")
        own = make(kind, config, dtype or torch.float16, "fa2", eager.state_dict(), "cpu")
        for gradients in (False, True):
            found = []
            for model in (eager, own):
                with torch.set_grad_enabled(gradients):
                    out = model(**inputs)
                out = (out.logits if hasattr(out, "logits") else out.last_hidden_state) * seen[..., None]
                found.append([out.detach()])
                if gradients:
                    (out.float() * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
                    found[-1] += [p.grad for p in model.parameters() if p.grad is not None]
            self.assertEqual(*map(len, found))
            for a, b in zip(*found):
                self.assertLess((a - b).abs().max().item(), most * max(1, a.abs().max().item()))

    def test_padding(self):
        t = transformers
        small = {**TEXT, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        for (first, last), most_masked in itertools.product(((0, 20), (0, 13), (9, 20), (4, 15)), (20, 0)):
            padding = torch.ones_like(self.ids)
            padding[1] = 0
            padding[1, first:last] = 1
            inputs = {"input_ids": self.ids, "attention_mask": padding}
            for name, kind, config in (("bert", t.BertModel, t.BertConfig(**small)),
                                       ("llama", t.LlamaForCausalLM, t.LlamaConfig(**small)),
                                       ("mistral", t.MistralForCausalLM, t.MistralConfig(**small, num_key_value_heads=1,
                                                                                         sliding_window=6))):
                # with gradients: as a mask, or packed without it
                with self.subTest(name, first=first, last=last, most_masked=most_masked), \
                        unittest.mock.patch.object(fa2_attn.transformers, "_MOST_MASKED", most_masked):
                    self.compare(kind, config, inputs, padding)

    def test_permissions(self):
        """Every call of a model has those that its name was registered with. Gradients are there."""
        t, asked = transformers, []
        config = t.LlamaConfig(**{**TEXT, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
                                  "num_attention_heads": 2})

        def attention(*tensors, sums, scores, pv, **settings):
            asked.append((sums, scores, pv))
            return host.attention(*tensors, sums=sums, scores=scores, pv=pv, **settings)

        fa2_attn.transformers.register("fa2_fp8", scores="int8", pv="fp8")
        with unittest.mock.patch.object(fa2_attn.transformers, "attention", attention):
            for name, words in (("fa2_fp8", ("fp32", "int8", "fp8")), ("fa2", ("fp32", "exact", "exact"))):
                model = make(t.LlamaForCausalLM, config, torch.float16, name, device="cpu")
                model(input_ids=self.ids).logits.float().sum().backward()
                self.assertEqual(asked, [words] * 2)
                self.assertTrue(all(p.grad is not None for p in model.parameters()))
                asked.clear()
        with self.assertRaisesRegex(ValueError, "pv is 'int8'; it must be one of exact, fp8"):
            fa2_attn.transformers.register("wrong", pv="int8")

    def test_fp32(self):
        """By kernels of fp32, not by sdpa: padding on either side, windows, gradients, a learned bias."""
        t = transformers
        small = {**TEXT, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        t5 = t.T5Config(vocab_size=500, d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0,
                        pad_token_id=0, decoder_start_token_id=0)
        for (first, last), most_masked in (((0, 20), 20), ((0, 13), 20), ((9, 20), 20), ((4, 15), 0)):
            padding = torch.ones_like(self.ids)
            padding[1] = 0
            padding[1, first:last] = 1
            inputs = {"input_ids": self.ids, "attention_mask": padding}
            for kind, config in ((t.BertModel, t.BertConfig(**small)),
                                 (t.MistralForCausalLM, t.MistralConfig(**small, num_key_value_heads=1, sliding_window=6))):
                with self.subTest(kind.__name__, first=first, last=last), \
                        unittest.mock.patch.object(fa2_attn.transformers, "_MOST_MASKED", most_masked):
                    self.compare(kind, config, inputs, padding, 1e-5, torch.float32)
        self.compare(t.T5Model, t5, {**inputs, "decoder_input_ids": self.ids, "use_cache": False}, padding, 1e-5,
                     torch.float32)
        self.assertEqual(fa2_attn.transformers._refusal(torch.empty(1, dtype=torch.float64), None),
                         "the tensors are torch.float64")

    def test_fp32_cache(self):
        """Padding before the text, in a cache with room after it: causal masks and windows end with the text."""
        g = torch.Generator().manual_seed(3)
        q, k, v = (torch.randn((2, 2, rows, 16), generator=g) for rows in (20, 24, 24))
        bounds, sinks = torch.tensor([[0, 20], [3, 20]], dtype=torch.int32).reshape(2, 1, 1, 2), torch.randn(2, generator=g)
        for window in (None, 6):
            mask = fa2_attn.transformers._mask_of_all(q, k, bounds, True, window)
            scores = (q @ k.mT / 4).masked_fill(~mask, -torch.inf)
            scores = torch.cat([scores, sinks[:, None, None].expand(2, 2, 20, 1)], -1)
            with self.subTest(window=window), torch.no_grad():
                out = fa2_attn.transformers._attend(q, k, v, None, bounds, {}, True, None, window, None, sinks, 0.0, None, {})
                self.assertLess((out.transpose(1, 2) - scores.softmax(-1)[..., :-1] @ v).abs().max().item(), 1e-5)

    def test_learned_bias(self):
        """T5: relative positions in the first layer, zeros across; with padding and without."""
        config = transformers.T5Config(vocab_size=500, d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2,
                                       dropout_rate=0.0, pad_token_id=0, decoder_start_token_id=0)
        for last in (20, 13):
            padding = torch.ones_like(self.ids)
            padding[1, last:] = 0
            inputs = {"input_ids": self.ids, "attention_mask": padding, "decoder_input_ids": self.ids[:, :11],
                      "use_cache": False}
            with self.subTest(last=last):
                self.compare(transformers.T5Model, config, inputs, torch.ones_like(inputs["decoder_input_ids"]))
            first = torch.ones_like(inputs["decoder_input_ids"])
            first[1, :4] = 0  # before the text, and queries behind it
            with self.subTest(last=last, first=4):
                self.compare(transformers.T5Model, config, {**inputs, "decoder_attention_mask": first}, first)

    def test_packed_sequences(self):
        t = transformers
        small = {**TEXT, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        ids = self.ids.reshape(1, -1)
        starts = torch.tensor([0, 7, 25, 40], dtype=torch.int32)
        places = torch.cat([torch.arange(b - a) for a, b in zip(starts, starts[1:])])[None]
        eager = make(t.LlamaForCausalLM, t.LlamaConfig(**small), torch.float16, "eager", device="cpu")
        own = make(t.LlamaForCausalLM, t.LlamaConfig(**small), torch.float16, "fa2", eager.state_dict(), "cpu")
        with torch.no_grad():
            got = own(input_ids=ids, position_ids=places, cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=18,
                      max_length_k=18, use_cache=False).logits
            for a, b in zip(starts.tolist(), starts.tolist()[1:]):
                wanted = eager(input_ids=ids[:, a:b], use_cache=False).logits
                self.assertLess((got[:, a:b] - wanted).abs().max().item(), 2e-2)


if __name__ == "__main__":
    unittest.main()
