"""fa2.attention: numbers, layouts, exchanges, streams, references."""

import ctypes
import gc
import math
import sys
import unittest

import device
import fa2
import reference
from device import ExchangeTensor, ManagedTensor, NewerTensor, OldTensor, Tensor


class Numbers(unittest.TestCase):
    def compare(self, q, k, v, **settings):
        out = settings.pop("out", None) or Tensor(q.shape, q.dtype)
        got = fa2.attention(q, k, v, out=out, **settings)
        self.assertIs(got, out)
        device.synchronize()
        wanted, _ = reference.attention(q, k, v, **settings)
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE[q.dtype])

    def test_plain(self):
        self.compare(*reference.tensors())

    def test_causal_with_groups_and_lengths(self):
        q, k, v = reference.tensors(batch=2, heads_q=4, heads_kv=2, seq_q=17, seq_k=50)
        self.compare(q, k, v, causal=True)
        self.compare(k, k, v, causal=1, scale=0.5)

    def test_bf16(self):
        self.compare(*reference.tensors(dtype="bf16"), causal=True)

    def test_rows_that_see_nothing(self):
        q, k, v = reference.tensors(heads_q=1, seq_q=20, seq_k=5)
        self.compare(q, k, v, causal=True)

    def test_packed_views(self):
        packed = Tensor((2, 33, 3, 2, 16))
        q, k, v = reference.tensors(batch=2, seq_q=33)
        for i, tensor in enumerate((q, k, v)):
            packed.selected(2, i).set(tensor.get())
        self.compare(*(packed.selected(2, i) for i in range(3)))

    def test_bhsd(self):
        q, k, v = reference.tensors(batch=2, seq_q=24, seq_k=31)
        wanted, _ = reference.attention(q, k, v)
        out = Tensor((2, 2, 24, 16))
        fa2.attention(*(t.permuted(0, 2, 1, 3) for t in (q, k, v)), layout="bhsd", out=out)
        device.synchronize()
        self.assertLess(reference.worst(out.permuted(0, 2, 1, 3).get(), wanted), reference.TOLERANCE["fp16"])

    def test_lse(self):
        q, k, v = reference.tensors(seq_q=9, seq_k=30, kind=ExchangeTensor)
        out, lse = fa2.attention(q, k, v, return_lse=True, causal=True)
        device.synchronize()
        wanted, wanted_lse = reference.attention(q, k, v, causal=True)
        self.assertEqual((lse.shape, lse.dtype), ((1, 2, 9), "fp32"))
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
        self.assertLess(reference.worst(lse.get(), wanted_lse), 1e-3)

    def test_features(self):
        q, k, v = reference.tensors(seq_q=20, seq_k=40)
        for settings in ({"window": (7, 3)}, {"window": (5, -1), "causal": True}, {"softcap": 2.0}):
            with self.subTest(**settings):
                self.compare(q, k, v, **settings)

    def test_lengths_on_the_device(self):
        q, k, v = reference.tensors(batch=2, seq_q=4, seq_k=40)
        lengths, out = Tensor((2,), "int32").set([31, 2]), Tensor(q.shape)
        fa2.attention(q, k, v, causal=True, seqused_k=lengths, out=out)
        device.synchronize()
        for b, length in enumerate(lengths.get()):
            one = [tensor.part(0, b, b + 1) for tensor in (q, k, v, out)]
            wanted, _ = reference.attention(one[0], one[1].part(1, 0, length), one[2].part(1, 0, length), causal=True)
            self.assertLess(reference.worst(one[3].get(), wanted), reference.TOLERANCE["fp16"])

    def test_features_with_tensors(self):
        q, k, v = reference.tensors(batch=2, seq_q=20, seq_k=40)
        padded = Tensor((2, 5), "fp32").set([float(i) for i in range(10)])
        for settings in ({"alibi_slopes": Tensor((2,), "fp32").set([0.5, 0.125]), "causal": True},
                         {"alibi_slopes": Tensor((2, 2), "fp32", memory=padded.memory, strides=(5, 1))},
                         {"sinks": Tensor((2,), "fp32").set([1.0, -0.5])}):
            with self.subTest(**settings):
                self.compare(q, k, v, **settings)

    def test_bias(self):
        q, k, v = reference.tensors(batch=2, seq_q=20, seq_k=40)
        one = [((i * 7) % 11 - 5) / 8 for i in range(20 * 40)]
        full = Tensor((2, 2, 20, 40), "fp32").set(one * 4)
        for dtype in ("fp32", "fp16", "bf16"):
            spread, out = Tensor((1, 1, 20, 40), dtype).set(one), Tensor(q.shape)
            fa2.attention(q, k, v, bias=spread, out=out)
            device.synchronize()
            wanted, _ = reference.attention(q, k, v, bias=full)
            self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
        mask = Tensor((2, 1, 1, 40), "bool").set([j % 3 != b for b in range(2) for j in range(40)])
        hidden = Tensor((2, 2, 20, 40), "fp32").set(
            [0.0 if j % 3 != b else -math.inf for b in range(2) for _ in range(40) for j in range(40)])
        fa2.attention(q, k, v, bias=mask, out=out)
        device.synchronize()
        wanted, _ = reference.attention(q, k, v, bias=hidden)
        self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])


class Exchanges(unittest.TestCase):
    def test_all_ways_give_the_same(self):
        q, k, v = reference.tensors()
        wanted, _ = reference.attention(q, k, v)
        for kind in (Tensor, OldTensor, ExchangeTensor, ManagedTensor, NewerTensor):
            with self.subTest(kind=kind.__name__):
                own = [t.as_type(kind) for t in (q, k, v)]
                out = Tensor(q.shape).as_type(kind)
                fa2.attention(*own, out=out)
                device.synchronize()
                self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
                self.assertEqual(device.lent(), 0)

    def test_output_of_the_library(self):
        q, k, v = reference.tensors(kind=ExchangeTensor)
        out = fa2.attention(q, k, v)
        self.assertIsInstance(out, ExchangeTensor)
        self.assertEqual((out.shape, out.dtype), (q.shape, "fp16"))

    def test_libraries_may_be_mixed(self):
        q, k, v = reference.tensors()
        out = fa2.attention(q.as_type(ExchangeTensor), k.as_type(OldTensor), v)
        device.synchronize()
        self.assertLess(reference.worst(out.get(), reference.attention(q, k, v)[0]), reference.TOLERANCE["fp16"])

    def test_streams(self):
        q, k, v = reference.tensors()
        out, stream = Tensor(q.shape), device.new_stream()
        Tensor.asked_streams.clear()
        fa2.attention(q, k, v, out=out)
        self.assertEqual(set(Tensor.asked_streams), {1})  # the default stream
        Tensor.asked_streams.clear()
        fa2.attention(q, k, v, out=out, stream=stream.value)
        self.assertEqual(set(Tensor.asked_streams), {stream.value})
        for names in ({"cuda_stream": stream.value}, {"ptr": stream.value},
                      {"__cuda_stream__": lambda self: (0, stream.value)}):
            Tensor.asked_streams.clear()
            fa2.attention(q, k, v, out=out, stream=type("Stream", (), names)())
            self.assertEqual(set(Tensor.asked_streams), {stream.value})

    def test_workspace(self):
        # one query row and many keys: blocks share the keys, and need memory to combine
        q, k, v = reference.tensors(heads_q=1, seq_q=1, seq_k=6000)
        problem = fa2.problem(q, k, v)
        self.assertEqual(problem["seq_k"], 6000)
        with fa2.Context() as context:
            self.assertGreater(context.workspace_size(problem), 0)
            wanted, _ = reference.attention(q, k, v)
            for kind, stream, lends in ((Tensor, None, 0), (ExchangeTensor, None, 1),
                                        (ExchangeTensor, device.new_stream().value, 0)):
                before, out = ExchangeTensor.allocated, Tensor(q.shape)
                for _ in range(2):
                    fa2.attention(*(t.as_type(kind) for t in (q, k, v)), out=out, context=context, stream=stream)
                device.synchronize()
                self.assertLess(reference.worst(out.get(), wanted), reference.TOLERANCE["fp16"])
                self.assertEqual(ExchangeTensor.allocated - before, 2 * lends)
        self.assertEqual(device.lent(), 0)


class References(unittest.TestCase):
    def test_nothing_is_kept(self):
        for kind in (Tensor, ExchangeTensor):
            q, k, v = reference.tensors(kind=kind, heads_q=1, seq_q=8)
            out = Tensor(q.shape)
            wrong = Tensor((1, 2, 3))
            keyword = "not_" + "interned"

            def calls(count):
                for _ in range(count):
                    fa2.attention(q, k, v, out=out, causal=False, scale=0.25, window=(-1, None))
                    fa2.problem(q, k, v)
                    for arguments, settings in (((q, k, wrong), {}), ((q, k, v), {"out": wrong}),
                                                ((q, k, v), {keyword: 1}), ((q, k, v), {"layout": "x"})):
                        try:
                            fa2.attention(*arguments, **settings)
                        except (ValueError, TypeError):
                            pass

            objects = (q, k, v, out, wrong, keyword, type(q))
            calls(30)
            grown = []
            for _ in range(3):  # what leaks grows each time; caches of ctypes do not
                gc.collect()
                before = [sys.getrefcount(x) for x in objects]
                blocks, memory = sys.getallocatedblocks(), device.live()
                calls(200)
                gc.collect()
                grown.append(sys.getallocatedblocks() - blocks)
                for a, b in zip(before, [sys.getrefcount(x) for x in objects]):
                    self.assertLess(abs(b - a), 10)
                self.assertEqual(device.live(), memory)
                self.assertEqual(device.lent(), 0)
            self.assertLess(min(grown), 100)

    def test_outputs_are_released(self):
        q, k, v = reference.tensors(kind=ExchangeTensor)
        fa2.attention(q, k, v, return_lse=True)
        gc.collect()
        before = device.live()
        for _ in range(5):
            fa2.attention(q, k, v, return_lse=True)
        gc.collect()
        self.assertEqual(device.live(), before)


class Graphs(unittest.TestCase):
    def test_capture(self):
        q, k, v = reference.tensors(seq_q=12, seq_k=21)
        out, stream = Tensor(q.shape), device.new_stream()
        graph, run = ctypes.c_void_p(), ctypes.c_void_p()
        context = fa2.Context()

        def captured():
            device.enter(0)
            device.check(device.driver.cuStreamBeginCapture_v2(stream, 2))
            try:
                fa2.attention(q, k, v, out=out, stream=stream.value, context=context)
            finally:
                device.check(device.driver.cuStreamEndCapture(stream, ctypes.byref(graph)))

        with self.assertRaisesRegex(fa2.Error, "not prepared and the stream is being captured") as raised:
            captured()
        self.assertEqual(raised.exception.status, "FA2_E_CAPTURE")
        context.prepare(fa2.problem(q, k, v))
        captured()
        device.check(device.driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_uint64(0)))
        del context  # the graph goes on
        gc.collect()
        device.check(device.driver.cuGraphLaunch(run, stream))
        device.synchronize()
        self.assertLess(reference.worst(out.get(), reference.attention(q, k, v)[0]), reference.TOLERANCE["fp16"])


if __name__ == "__main__":
    unittest.main()
