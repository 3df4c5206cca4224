"""The script of runtime/python/training.md, as it is: ranks as processes with gloo, kernels on the software device.

Two ranks that share each of their sequences with another one must have the losses and gradients of two ranks that have
them alone, also with FSDP in the place of DistributedDataParallel, as the page says.
"""

import contextlib
import os
import pathlib
import re
import socket
import sys
import tempfile
import traceback
import unittest

try:
    import torch
    import torch.multiprocessing
    import host
except ImportError:
    torch = None

PAGE = pathlib.Path(__file__).resolve().parents[2] / "runtime/python/training.md"
WRAPPED = "model = DistributedDataParallel(model)\n"


def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def with_fsdp(text):
    """The script with the page's lines for FSDP, whose norm is one number on all ranks only when it is asked for."""
    lines = next(block for block in blocks() if "fully_shard" in block)
    return text.replace(WRAPPED, lines).replace("    optimizer.step()\n", "    norm = norm.full_tensor()\n"
                                                "    optimizer.step()\n")


def work(rank, ranks, port, sharing, text, said):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(ranks), SHARING=str(sharing))
    torch.set_num_threads(1)
    host.install()
    try:
        with open(said if rank == 0 else os.devnull, "w") as file, contextlib.redirect_stdout(file):
            exec(compile(text, str(PAGE), "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # threads that PyTorch keeps for a mesh may abort an ordinary exit


@unittest.skipIf(torch is None, "PyTorch or the software device is missing")
class Training(unittest.TestCase):
    def numbers(self, ranks, sharing, text):
        """The numbers that the script prints."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as folder:
            said = pathlib.Path(folder, "said")
            torch.multiprocessing.spawn(work, (ranks, port, sharing, text, str(said)), ranks)
            return [float(number) for number in re.findall(r"\d+\.\d+", said.read_text())]

    def test_script(self):
        text = blocks()[-1]
        wanted = self.numbers(2, 1, text)
        self.assertEqual(len(wanted), 9)  # losses and gradients of four steps, and the loss of the evaluation
        self.assertLess(wanted[-1], 0.7 * wanted[0])
        for name, script in (("DDP", text), ("FSDP", with_fsdp(text))):
            self.assertEqual(WRAPPED in script, name == "DDP")
            for got, right in zip(self.numbers(4, 2, script), wanted):
                self.assertAlmostEqual(got / right, 1, delta=2e-3, msg=name)

    def test_labels(self):
        """The page's short lines: labels that are shifted first belong to their tokens."""
        lines = next(block for block in blocks() if block.startswith("tokens, labels = text"))
        text = torch.arange(2 * 17).reshape(2, 17)
        for rank in range(2):
            class Several:
                @staticmethod
                def shard(tensor, group):
                    from fa2_attn import distributed
                    return tensor[:, distributed.positions(tensor.shape[1], rank=group, ranks=2)]
            names = {"several": Several, "text": text, "sequence": rank}
            exec(lines, names)
            self.assertTrue(torch.equal(names["labels"], names["tokens"] + 1))
            self.assertEqual(names["tokens"].shape, (2, 8))


if __name__ == "__main__":
    unittest.main()
