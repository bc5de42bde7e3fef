#!/usr/bin/env python3
"""How long does a training step take under DistributedDataParallel, with each communication hook?

    PYTHONPATH=build/python python3 bench/ddp.py [--quick]

The model: six Linear layers of 2048 x 2048 with ReLU and a head of 10 classes, 25.2 million parameters in seven
buckets, a batch of 64 per process, SGD. A step is 10 GFLOP, about 0.2 s of one core, with 101 MB of gradients.
The links: loopback as it is, and 100 Mbit/s (by network namespaces and tc, which needs root). All hooks take turns
in the same processes. Their models share one set of weights; each has its own gradients and buckets.

Columns, in milliseconds, medians over steps:
  steps    over how many steps: few where a step takes seconds, and then the median says little
  step     forward, backward with the exchange, and optimizer, on rank 0
  exposed  the step less a step without any exchange (no_sync): how long training waits for the exchange
  hook     how long the hook works in a step, on the rank where that is shortest: on the others it includes waiting
           for that rank. For Python hooks: from the call until the future is complete, where two buckets overlap
           counted once. For ours: compress, agree, exchange and decode of the report, which run on the engine's
           own thread while backward goes on.
"""

import argparse
import contextlib
import functools
import itertools
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import skip_init

import gravac

LAYERS, WIDTH, BATCH, FACTOR = 6, 2048, 64, 100
PARTS = ("compress", "agree", "exchange", "decode")


# The hooks.


def completed(tensor):
    future = torch.futures.Future()
    future.set_result(tensor)
    return future


class PythonTopK:
    """Top-k as it is usually written in Python: residual, torch.topk, all-gather of values and positions, sum."""

    def __init__(self):
        self.residuals = {}

    def hook(self, bucket):
        flat = bucket.buffer()
        key = (bucket.index(), flat.numel())  # DDP changes its buckets after the first step
        if key in self.residuals:
            flat.add_(self.residuals[key])
        _, positions = torch.topk(flat.abs(), max(1, flat.numel() // FACTOR), sorted=False)
        values = flat[positions]
        self.residuals[key] = flat.clone()
        self.residuals[key][positions] = 0
        size = dist.get_world_size()
        all_values = [torch.empty_like(values) for _ in range(size)]
        all_positions = [torch.empty_like(positions) for _ in range(size)]
        works = [
            dist.all_gather(all_values, values, async_op=True),
            dist.all_gather(all_positions, positions, async_op=True),
        ]
        for work in works:
            work.wait()
        flat.zero_()
        for one_values, one_positions in zip(all_values, all_positions):
            flat.index_add_(0, one_positions, one_values)
        return completed(flat.div_(size))


class Timed:
    """A Python hook that records when it begins and ends."""

    def __init__(self, hook):
        self.hook = hook
        self.spans = []

    def take(self, bucket):
        span = [time.perf_counter(), None]
        self.spans.append(span)

        def ended(future):
            span[1] = time.perf_counter()
            value = future.value()
            return value[0] if isinstance(value, (list, tuple)) else value

        return self.hook(bucket).then(ended)

    def seconds(self):
        """How long the hook worked in the last step, as a list of one number; overlapping buckets count once."""
        total, until = 0.0, 0.0
        for start, end in sorted(self.spans):
            total += max(0.0, end - max(start, until))
            until = max(until, end)
        self.spans = []
        return [total]


def timed_hook(timed: Timed, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return timed.take(bucket)


class Ours:
    def __init__(self, **options):
        self.state = gravac.GravacState(**options)

    def seconds(self):
        """The seconds of each of PARTS in the last step."""
        found = self.state.report()
        return [found[part + "_seconds"] for part in PARTS]


def power_sgd(rank):
    """PowerSGD, one bucket at a time. torch's hook starts an exchange when another one ends; on Gloo's threads that
    may happen in a different order on each rank, and then ranks would mix up the exchanges of two buckets."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
    return lambda bucket: completed(powerSGD_hook.powerSGD_hook(state, bucket).wait())


def no_hook():
    return None


# By name, in the order of the printed table. All are compared with the first.
HOOKS = {
    "plain DDP": no_hook,
    "allreduce_hook": lambda: Timed(lambda bucket: default_hooks.allreduce_hook(None, bucket)),  # cost of any hook
    "fp16_compress_hook": lambda: Timed(lambda bucket: default_hooks.fp16_compress_hook(None, bucket)),
    "PowerSGD rank 1": lambda: Timed(power_sgd(1)),
    "Top-k 100x in Python": lambda: Timed(PythonTopK().hook),
    "ours, static 100x": lambda: Ours(policy="static", factor=FACTOR),
    "ours, gravac": lambda: Ours(policy="gravac"),
    "ours, progress": lambda: Ours(policy="progress"),
}
# On the 100 Mbit link ("shaped") a dense step takes seconds. So fewer hooks are timed there (by number of
# processes), and progress, which begins with dense steps, decides after a shorter interval.
SHAPED = {
    2: ["plain DDP", "fp16_compress_hook", "PowerSGD rank 1", "Top-k 100x in Python", "ours, static 100x",
        "ours, gravac", "ours, progress"],
    4: ["plain DDP", "PowerSGD rank 1", "Top-k 100x in Python", "ours, static 100x"],
}  # fmt: skip
SHAPED_PROGRESS = {"ours, progress": lambda: Ours(policy="progress", interval=1)}
OURS = [name for name in HOOKS if name.startswith("ours")]
SLOW = ["Top-k 100x in Python"]  # takes seconds per step: one step where others take three
SLOW_SHAPED = ["plain DDP", "fp16_compress_hook"]  # many seconds per step, but steady: one step is enough


def hooks_for(processes, shaped):
    if not shaped:
        return HOOKS
    return {name: SHAPED_PROGRESS.get(name, HOOKS[name]) for name in SHAPED.get(processes, SHAPED[4])}


# One process.


def network(weights=None, seed=0):
    """The model. If another one is given as `weights`, the two share their weights."""
    torch.manual_seed(seed)
    linear = functools.partial(skip_init, torch.nn.Linear) if weights else torch.nn.Linear
    stack = []
    for _ in range(LAYERS):
        stack += [linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*stack, linear(WIDTH, 10))
    if weights:
        for mine, theirs in zip(model.parameters(), weights.parameters()):
            mine.data = theirs.data
    return model


def batches(count):
    """Random batches for this rank, `count` different ones over and over."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    data = [
        (torch.randn(BATCH, WIDTH, generator=generator), torch.randint(10, (BATCH,), generator=generator))
        for _ in range(count)
    ]
    return itertools.cycle(data)


class Runner:
    """A model with one hook, and the times of its steps."""

    def __init__(self, name, make_hook, weights=None):
        self.name = name
        self.model = DistributedDataParallel(network(weights))
        self.data = batches(32)
        self.hook = make_hook()
        if isinstance(self.hook, Ours):
            self.model.register_comm_hook(self.hook.state, gravac.gravac_hook)
        elif self.hook is not None:
            self.model.register_comm_hook(self.hook, timed_hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.003)
        self.step_seconds, self.hook_seconds = [], []

    def backward(self):
        self.optimizer.zero_grad(set_to_none=True)
        inputs, labels = next(self.data)
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        return loss

    def gradients(self):
        """The gradients after one step's exchange, as one flat tensor."""
        self.backward()
        self.forget()
        return torch.cat([p.grad.view(-1) for p in self.model.parameters()])

    def step(self, exchange):
        with contextlib.nullcontext() if exchange else self.model.no_sync():
            start = time.perf_counter()
            loss = self.backward()
            self.optimizer.step()
            self.step_seconds.append(time.perf_counter() - start)
        if exchange and self.hook is not None:
            self.hook_seconds.append(self.hook.seconds())
        if not math.isfinite(loss.item()):
            raise RuntimeError(f"{self.name}: loss {loss.item()} found, a finite one expected")

    def run(self, steps, exchange=True):
        dist.barrier()
        for _ in range(steps):
            self.step(exchange)
        self.optimizer.zero_grad(set_to_none=True)  # the gradients of all models together would not fit in memory

    def forget(self):
        self.step_seconds, self.hook_seconds = [], []
        if self.hook is not None:
            self.hook.seconds()

    def result(self):
        found = {"steps": len(self.step_seconds), "step": statistics.median(self.step_seconds), "hook": None}
        if self.hook_seconds:
            ranks = [None] * dist.get_world_size()
            dist.all_gather_object(ranks, self.hook_seconds)
            least = [min(parts, key=sum) for parts in zip(*ranks)]  # for each step, the rank that waited least
            found["hook"] = statistics.median(map(sum, least))
        if isinstance(self.hook, Ours):
            report = self.hook.state.report()
            found.update(factor=report["factor"], bytes=report["bytes_sent"])
            found["parts"] = dict(zip(PARTS, map(statistics.median, zip(*least))))
        return found


def check_answers(runners):
    """Checks the gradients. Our dense policy gives those of DDP to the bit; at 100x a few hundredths of the
    entries are not zero, and all ranks have the same."""
    plain = runners["plain DDP"]
    dense = Runner("ours, dense", lambda: Ours(policy="dense"), plain.model.module)
    dense.run(3)  # after which DDP has settled on the same buckets, so that sums are added in the same order
    plain.data = batches(1)
    dense.data = batches(1)
    expected, found = plain.gradients(), dense.gradients()
    if not torch.equal(expected, found):
        raise RuntimeError(f"dense: ours differs from DDP by {(expected - found).abs().max()}")
    plain.data = batches(32)
    for name in ("Top-k 100x in Python", "ours, static 100x"):
        found = runners[name].gradients()
        share = (found != 0).float().mean().item()
        if not 0.2 / FACTOR <= share <= 0.1 * dist.get_world_size():
            raise RuntimeError(f"{name}: a share of {share:.4f} of the gradient's entries is not zero")
        other = found.clone()
        dist.broadcast(other, 0)
        if not torch.equal(other, found):
            raise RuntimeError(f"{name}: ranks have different gradients")


def wait_for_link(shaped):
    """Asks the parent process to limit the link to 100 Mbit/s, and waits. Warm-up steps ran at full speed."""
    if not shaped:
        return
    if dist.get_rank() == 0:
        print("warm", flush=True)
        sys.stdin.readline()
    dist.barrier()


def work(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    shaped, quick = arguments.shaped, arguments.quick
    runners = {}
    for name, make_hook in hooks_for(dist.get_world_size(), shaped).items():
        runners[name] = Runner(name, make_hook, runners["plain DDP"].model.module if runners else None)
    alone = Runner("alone", no_hook, runners["plain DDP"].model.module)  # only run without an exchange

    # Our policies measure the link, so on a limited link they warm up only after it has been limited.
    for name, runner in runners.items():
        if not (shaped and name in OURS):
            runner.run(3)
    alone.run(1, exchange=False)
    if not shaped:
        check_answers(runners)
    wait_for_link(shaped)
    for name in OURS:
        if shaped and name in runners:
            runners[name].run(4)
    if not quick and "ours, progress" in runners:
        runners["ours, progress"].run(8)  # until it has chosen its factor

    for runner in [*runners.values(), alone]:
        runner.forget()
    for block in range(1 if quick else 2 if shaped or dist.get_world_size() > 2 else 4):
        for name in list(runners)[:: 1 if block % 2 == 0 else -1]:
            if not (block > 0 and shaped and name in SLOW_SHAPED):
                runners[name].run(1 if quick or shaped or name in SLOW else 3)
        alone.run(1 if quick or shaped else 3, exchange=False)

    results = {name: runner.result() for name, runner in runners.items()}
    results["alone"] = alone.result()
    if dist.get_rank() == 0:
        print(json.dumps(results), flush=True)
    dist.barrier()
    os._exit(0)  # an orderly exit may hang: every hook has a process group of its own


# The processes, and the link between them.


class Link:
    """One network namespace per process, connected by a bridge; removed at the end, also after an error."""

    def __init__(self, processes):
        self.name = f"gvb{os.getpid()}"
        self.processes = processes

    def __enter__(self):
        try:
            self.run("ip link add {0} type bridge", "ip link set {0} up")
            for i in range(1, self.processes + 1):
                self.run(
                    f"ip netns add {{0}}n{i}",
                    f"ip link add {{0}}h{i} type veth peer name eth0 netns {{0}}n{i}",
                    f"ip link set {{0}}h{i} master {{0}} up",
                    f"ip -n {{0}}n{i} addr add 10.79.0.{i}/24 dev eth0",
                    f"ip -n {{0}}n{i} link set eth0 up",
                    f"ip -n {{0}}n{i} link set lo up",
                )
        except BaseException:
            self.remove()
            raise
        return self

    def shape(self, rate="100mbit"):
        # A bucket of 5 ms: the kernel refills it 250 times a second, and a smaller one would lower the rate.
        burst = {"100mbit": "64kb", "1gbit": "640kb"}[rate]
        for i in range(1, self.processes + 1):
            how = f"root tbf rate {rate} burst {burst} latency 100ms"
            self.run(f"tc -n {{0}}n{i} qdisc replace dev eth0 {how}", f"tc qdisc replace dev {{0}}h{i} {how}")

    def unshape(self):
        for i in range(1, self.processes + 1):
            self.run(f"tc -n {{0}}n{i} qdisc del dev eth0 root", f"tc qdisc del dev {{0}}h{i} root")

    def run(self, *commands):
        for command in commands:
            subprocess.run(command.format(self.name).split(), check=True)

    def remove(self):
        for i in range(1, self.processes + 1):
            subprocess.run(["ip", "netns", "del", f"{self.name}n{i}"], stderr=subprocess.DEVNULL)
            subprocess.run(["ip", "link", "del", f"{self.name}h{i}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", self.name], stderr=subprocess.DEVNULL)

    def __exit__(self, *_):
        self.remove()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(processes, link, arguments):
    """Starts a Python program with these arguments once per rank."""
    port = free_port()
    started = []
    for rank in range(processes):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(processes), MASTER_PORT=str(port),
                           MASTER_ADDR="10.79.0.1" if link else "127.0.0.1",
                           GLOO_SOCKET_IFNAME="eth0" if link else "lo")  # fmt: skip
        command = ["ip", "netns", "exec", f"{link.name}n{rank + 1}"] if link else []
        command += [sys.executable, *arguments]
        started.append(
            subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
    return started


def measure(processes, link, quick):
    """Starts the processes and returns the results that rank 0 prints."""
    flags = (["--shaped"] if link else []) + (["--quick"] if quick else [])
    started = start(processes, link, [__file__, "--work", *flags])
    try:
        line = started[0].stdout.readline()
        if link and line.strip() == "warm":
            link.shape()
            started[0].stdin.write("go\n")
            started[0].stdin.flush()
            line = started[0].stdout.readline()
        if not line:
            raise SystemExit("rank 0 ended without printing its results")
        for process in started:
            process.wait(60)
        return json.loads(line)
    finally:
        for process in started:
            process.kill()
            process.wait()


# The results.


def show(title, results, shaped=False):
    note = {"PowerSGD rank 1": ", in series"} | ({"ours, progress": ", interval 1"} if shaped else {})
    plain, alone = results["plain DDP"]["step"], results["alone"]["step"]
    print(f"\n{title}\n{'':28}{'steps':>6}{'step':>9}{'exposed':>9}{'hook':>9}{'of plain':>9}")
    for name, found in results.items():
        hook = f"{1e3 * found['hook']:.1f}" if found["hook"] is not None else "-"
        line = f"{name + note.get(name, ''):28}{found['steps']:6}"
        line += f"{1e3 * found['step']:9.1f}{1e3 * (found['step'] - alone):9.1f}{hook:>9}"
        line += f"{found['step'] / plain:9.2f}"
        if "factor" in found:
            parts = ", ".join(f"{part} {1e3 * seconds:.1f}" for part, seconds in found["parts"].items())
            line += f"   {parts}; last step: factor {found['factor']:.3g}, {found['bytes'] / 1e6:.2f} MB"
        print(line, flush=True)


def show_goals(everything):
    print("\ngoals")

    def goal(what, ratio, least=None, most=None):
        met = ratio >= least if least is not None else ratio <= most
        bound = f">= {least}" if least is not None else f"<= {most}"
        print(f"{'met   ' if met else 'missed'} {what:76}{ratio:8.2f}  {bound}")

    for (processes, shaped), results in everything.items():
        where = f"{processes} processes, {'100 Mbit' if shaped else 'link as it is'}"
        plain, ours = results["plain DDP"], results["ours, static 100x"]
        python = results["Top-k 100x in Python"]
        if shaped:
            goal(f"plain DDP / ours 100x, step: {where}", plain["step"] / ours["step"], least=1)
        else:
            goal(f"Top-k in Python / ours 100x, hook: {where}", python["hook"] / ours["hook"], least=10)
            progress, any_hook = results["ours, progress"], results["allreduce_hook"]
            goal(f"progress / plain DDP, step: {where}", progress["step"] / plain["step"], most=1.03)
            goal(f"progress / allreduce_hook, step: {where}", progress["step"] / any_hook["step"], most=1.03)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a test of this script: one step, two processes")
    parser.add_argument("--processes", type=int, nargs="*", help="numbers of processes; default: 2 4")
    parser.add_argument(
        "--link", choices=["both", "plain", "shaped"], default="both", help="plain: loopback; shaped: 100 Mbit/s"
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--shaped", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments)

    print(f"torch {torch.__version__}, {os.cpu_count()} cores, gravac {gravac.__version__}; milliseconds")
    began = time.monotonic()
    everything = {}
    for processes in arguments.processes or ([2] if arguments.quick else [2, 4]):
        if arguments.link != "shaped":
            everything[processes, False] = measure(processes, None, arguments.quick)
            show(f"{processes} processes, link as it is", everything[processes, False])
        if arguments.link == "plain":
            continue
        if os.geteuid() != 0:
            print("\n100 Mbit: left out, since only root can limit a link")
            continue
        with Link(processes) as link:
            everything[processes, True] = measure(processes, link, arguments.quick)
        show(f"{processes} processes, 100 Mbit", everything[processes, True], shaped=True)
    show_goals(everything)
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
