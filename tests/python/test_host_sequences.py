"""fa2_attn.torch and fa2_attn.flash_attn where sequences have lengths, are packed, or keys lie in a cache: with PyTorch's tensors
on the host and kernels of the software device (on_host.py)."""

import unittest

try:
    import torch
    import torch.utils.checkpoint
    import fa2_attn as fa2
    import fa2_attn.torch
    from fa2_attn import flash_attn
except ImportError:
    torch = None

from on_host import OnHost, gradients, randn


class Sequences(OnHost):
    def packed(self, lengths):
        starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
        return starts, sum(lengths), max(lengths)

    def test_packed_sequences(self):
        lengths_q, lengths_k = (5, 0, 30), (9, 12, 33)
        (cu_q, total_q, most_q), (cu_k, total_k, most_k) = self.packed(lengths_q), self.packed(lengths_k)
        for width in (16, 12):
            q, kv = randn((total_q, 4, width), (total_k, 2, 2, width))
            k, v = kv.unbind(1)
            for settings in ({}, {"causal": True}, {"window_size": (4, 2)}, {"softcap": 2.0}):
                with self.subTest(width=width, **settings):
                    arguments = (cu_q, cu_k, most_q, most_k)
                    out, lse, _ = flash_attn.flash_attn_varlen_func(q, k, v, *arguments, return_attn_probs=True, **settings)
                    self.assertEqual((out.shape, lse.shape), ((total_q, 4, width), (4, total_q)))
                    for b in (0, 2):
                        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
                        wanted, wanted_lse, _ = flash_attn.flash_attn_func(
                            q[None, rows], k[None, keys], v[None, keys], return_attn_probs=True, **settings)
                        self.assert_close(out[rows], wanted[0])
                        self.assert_close(lse[:, rows], wanted_lse[0])
                    self.assertTrue(torch.equal(
                        flash_attn.flash_attn_varlen_kvpacked_func(q, kv, *arguments, **settings), out))
        qkv, = randn((total_k, 3, 2, 16))
        out = flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu_k, most_k, causal=True)
        self.assertTrue(torch.equal(out, flash_attn.flash_attn_varlen_func(
            *qkv.unbind(1), cu_k, cu_k, most_k, most_k, causal=True)))

    def test_gradients_of_packed_sequences(self):
        """Those of each sequence by itself; through bert_padding; packed tensors."""
        mask = torch.ones(3, 24, dtype=torch.bool)
        mask[0, 9:] = mask[2, 20:] = False
        hidden, = randn((3, 24, 3, 2, 16))

        def unpadded(hidden):
            rows, indices, starts, longest, _ = flash_attn.bert_padding.unpad_input(hidden, mask)
            out = flash_attn.flash_attn_varlen_qkvpacked_func(rows, starts, longest, causal=True, deterministic=True)
            return flash_attn.bert_padding.pad_input(out, indices, 3, 24)

        def one_by_one(hidden):
            parts = [flash_attn.flash_attn_qkvpacked_func(row[None, :length], causal=True, deterministic=True)
                     for row, length in zip(hidden, mask.sum(1).tolist())]
            return torch.cat([torch.nn.functional.pad(part, (0, 0, 0, 0, 0, 24 - part.shape[1])) for part in parts])

        got, wanted = gradients(unpadded, hidden), gradients(one_by_one, hidden)
        for a, b in zip(got, wanted):
            self.assert_close(a, b)
        rows, _, starts, longest, _ = flash_attn.bert_padding.unpad_input(hidden, mask)
        arguments = (starts, starts, longest, longest)
        settings = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": longest, "max_seqlen_k": longest}
        wanted = gradients(lambda *t: flash_attn.flash_attn_varlen_func(*t, *arguments, deterministic=True), *rows.unbind(1))
        for function in (
                lambda *t: torch.ops.fa2.attention(*t, deterministic=True, **settings)[0],
                lambda q, k, v: flash_attn.flash_attn_varlen_kvpacked_func(q, torch.stack((k, v), 1), *arguments,
                                                                           deterministic=True),
                lambda *t: torch.utils.checkpoint.checkpoint(
                    lambda *u: fa2_attn.torch.attention_packed(*u, deterministic=True, **settings), *t, use_reentrant=False)):
            self.assert_equal(gradients(function, *rows.unbind(1)), wanted)
        fa2_attn.torch.attention_packed(rows.detach().requires_grad_(), **settings).sum().backward()

    def test_rows_of_no_sequence(self):
        """Rows before the first bound and from the last one on are 0, as their gradients are, whatever memory held."""
        torch.use_deterministic_algorithms(True)  # new tensors are full of NaN
        self.addCleanup(torch.use_deterministic_algorithms, False)
        for bounds, width, heads in (([0, 12, 20], 16, (2, 2)), ([3, 15, 15, 23], 12, (4, 2)), ([24, 24], 16, (2, 2))):
            starts = torch.tensor(bounds, dtype=torch.int32)
            used = slice(bounds[0], bounds[-1])
            q, kv, hidden = randn((24, heads[0], width), (24, 2, heads[1], width), (24, 8))
            settings = {"causal": True, "deterministic": True}

            def kv_packed(q, kv):
                return flash_attn.flash_attn_varlen_kvpacked_func(q, kv, starts, starts, 12, 12, **settings)

            def separate(q, kv):
                return flash_attn.flash_attn_varlen_func(q, *kv.unbind(1), starts, starts, 12, 12, **settings)

            def qkv_packed(q, kv):
                return flash_attn.flash_attn_varlen_qkvpacked_func(torch.cat((q[:, None], kv), 1), starts, 12, **settings)

            for function in (kv_packed, separate, qkv_packed) if heads[0] == heads[1] else (kv_packed, separate):
                with self.subTest(bounds=bounds, function=function.__name__):
                    leaves = [tensor.detach().requires_grad_() for tensor in (q, kv)]
                    out = function(*leaves)
                    out[used].float().sum().backward()
                    for tensor in (out, *(leaf.grad for leaf in leaves)):
                        self.assertFalse(tensor.isnan().any())
                        self.assertTrue((tensor[:used.start] == 0).all() and (tensor[used.stop:] == 0).all())
            weight = torch.randn(8, 3 * 2 * 16, dtype=torch.float16, requires_grad=True)
            rows = (hidden @ weight).unflatten(1, (3, 2, 16))
            flash_attn.flash_attn_varlen_qkvpacked_func(rows, starts, 12, **settings)[used].sum().backward()
            self.assertTrue(weight.grad.isfinite().all())

    def pages(self, cache, table, page):
        """The rows of a cache in pages."""
        made = torch.full((int(table.max()) + 1, page, *cache.shape[2:]), torch.nan, dtype=cache.dtype)
        for b, numbers in enumerate(table.tolist()):
            for i, number in enumerate(numbers):
                made[number] = cache[b, i * page:(i + 1) * page]
        return made

    def test_pages(self):
        q, k, v, k_cache, v_cache = randn((2, 3, 4, 16), *2 * [(2, 3, 2, 16)], *2 * [(2, 48, 2, 16)])
        table = torch.tensor([[3, 0, 5], [1, 4, 2]], dtype=torch.int32)
        lengths = torch.tensor([40, 7], dtype=torch.int32)
        for used in (None, lengths, 30):
            for new in ((), (k, v)) if used is not None else ((),):
                caches = [cache.clone() for cache in (k_cache, v_cache)]
                paged = [self.pages(cache, table, 16) for cache in caches]
                wanted = flash_attn.flash_attn_with_kvcache(q, *caches, *new, cache_seqlens=used, causal=True)
                got = flash_attn.flash_attn_with_kvcache(q, *paged, *new, cache_seqlens=used, causal=True,
                                                         block_table=table)
                self.assert_close(got, wanted)
                for pages, cache in zip(paged, caches):
                    self.assertTrue(torch.equal(pages, self.pages(cache, table, 16)))
        with self.assertRaisesRegex(ValueError, "room for 48 keys; 46 and 3 are more"):
            flash_attn.flash_attn_with_kvcache(q, *paged, k, v, cache_seqlens=46, block_table=table)
        packed = q.flatten(0, 1)
        cu_q, cu_k = torch.tensor([0, 3, 6], dtype=torch.int32), torch.tensor([0, 40, 47], dtype=torch.int32)
        got = flash_attn.flash_attn_varlen_func(packed, *paged, cu_q, cu_k, 3, 40, causal=True, block_table=table)
        self.assert_close(got.unflatten(0, (2, 3)), flash_attn.flash_attn_with_kvcache(
            q, *caches, cache_seqlens=lengths, causal=True))


    def test_cache_rows_and_padding(self):
        q, k, v, k_cache, v_cache = randn((2, 3, 4, 16), *2 * [(2, 3, 2, 16)], *2 * [(4, 48, 2, 16)])
        rows, padding = torch.tensor([3, 1], dtype=torch.int32), torch.tensor([5, 0], dtype=torch.int32)
        lengths = torch.tensor([40, 7], dtype=torch.int32)
        for used in (lengths, 30):
            for new in ((), (k, v)):
                caches = [cache.clone() for cache in (k_cache, v_cache)]
                own = [cache[rows.long()] for cache in caches]
                out, lse = flash_attn.flash_attn_with_kvcache(
                    q, *caches, *new, cache_seqlens=used, cache_batch_idx=rows, cache_leftpad=padding, causal=True,
                    return_softmax_lse=True)
                for b, pad in enumerate(padding.tolist()):
                    length = used if isinstance(used, int) else int(used[b])
                    wanted, wanted_lse = flash_attn.flash_attn_with_kvcache(
                        q[b:b + 1], *(cache[b:b + 1, pad:] for cache in own), *(x[b:b + 1] for x in new),
                        cache_seqlens=length - pad, causal=True, return_softmax_lse=True)
                    self.assert_close(out[b], wanted[0])
                    self.assert_close(lse[b], wanted_lse[0])
                for cache, one in zip(caches, own):
                    self.assertTrue(torch.equal(cache[rows.long()], one))


    def test_new_keys_are_turned(self):
        """Rounded once: as near to the exact value as the type can be. Q is turned as they are."""
        angles = torch.outer(torch.arange(48.0), 1 / 100 ** torch.linspace(0, 1, 16))
        lengths = torch.tensor([4, 9], dtype=torch.int32)
        places = torch.stack([torch.arange(start, start + 3) for start in lengths.tolist()])[:, :, None]
        for dtype, interleaved in ((torch.float16, False), (torch.bfloat16, True)):
            q, k, v, k_cache, v_cache = randn((2, 3, 4, 48), *2 * [(2, 3, 2, 48)], *2 * [(2, 48, 2, 48)], dtype=dtype)
            cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
            c, s = (table[places].double() for table in (cos, sin))
            first, second = (slice(0, 32, 2), slice(1, 32, 2)) if interleaved else (slice(16), slice(16, 32))

            def turned(x):
                exact = x.double()
                a, b = x[..., first].double(), x[..., second].double()
                exact[..., first], exact[..., second] = a * c - b * s, a * s + b * c
                return exact

            caches = [cache.clone() for cache in (k_cache, v_cache)]
            out = flash_attn.flash_attn_with_kvcache(q, *caches, k, v, cos, sin, lengths, causal=True,
                                                     rotary_interleaved=interleaved)
            rows = torch.arange(2)[:, None]
            got, exact = caches[0][rows, places[..., 0]], turned(k)
            bound = exact.abs() * torch.finfo(dtype).eps / 2 + 1e-6
            self.assertTrue(((got.double() - exact).abs() <= bound).all())
            self.assertTrue(torch.equal(caches[1][rows, places[..., 0]], v))
            for cache, old in zip(caches, (k_cache, v_cache)):
                cache[rows, places[..., 0]] = old[rows, places[..., 0]]
                self.assertTrue(torch.equal(cache, old))
            plain = flash_attn.flash_attn_with_kvcache(turned(q).to(dtype), k_cache, v_cache, turned(k).to(dtype), v,
                                                       cache_seqlens=lengths, causal=True)
            self.assert_close(out, plain, 8e-3 if dtype == torch.float16 else 6e-2)

    def test_tables_of_another_type(self):
        """Are refused, as flash-attn does, and nothing is written."""
        q, k, v, *caches = randn((2, 1, 4, 16), *2 * [(2, 1, 2, 16)], *2 * [(2, 8, 2, 16)])
        before = [cache.clone() for cache in caches]
        cos, sin = torch.ones(8, 8), torch.zeros(8, 8)
        for tables in ((cos, sin), (cos.half(), sin), (cos, sin.half())):
            with self.assertRaisesRegex(ValueError, "must be .*of q's type"):
                flash_attn.flash_attn_with_kvcache(q, *caches, k, v, *tables, 3)
        self.assert_equal(caches, before)

    def test_caches_that_kernels_cannot_write(self):
        """Of columns that are no multiple of 8, or not side by side: copied, and copied back."""
        q, k, v, wide_k, wide_v = randn((2, 2, 4, 20), *2 * [(2, 2, 2, 20)], *2 * [(2, 24, 2, 20, 2)])
        for caches in ((wide_k[..., 0], wide_v[..., 1]), (wide_k[..., 0].contiguous(), wide_v[..., 1].contiguous())):
            wanted = [cache.clone() for cache in caches]
            for cache, new in zip(wanted, (k, v)):
                cache[:, 11:13] = new
            out = flash_attn.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=11, causal=True)
            self.assert_equal(caches, wanted)
            self.assert_close(out, flash_attn.flash_attn_func(q, *(cache[:, :13] for cache in caches), causal=True))

    def test_compiled_cache(self):
        """The compiler sees that the cache is written."""
        q, k, v, *caches = randn((2, 3, 4, 16), *2 * [(2, 3, 2, 16)], *2 * [(2, 48, 2, 16)])
        own = [cache.clone() for cache in caches]
        lengths = torch.tensor([40, 7], dtype=torch.int32)

        def function(q, k_cache, v_cache, k, v):
            out = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
            return out * 2 + k_cache.sum()

        wanted = function(q, *caches, k, v)
        got = torch.compile(function, backend="aot_eager", fullgraph=True)(q, *own, k, v)
        self.assertTrue(torch.equal(got, wanted))
        self.assert_equal(own, caches)
        with self.assertRaisesRegex(NotImplementedError, "k_new.*no gradient"):
            fa2.attention(q.detach().requires_grad_(), *caches, k_new=k, v_new=v)


if __name__ == "__main__":
    unittest.main()
