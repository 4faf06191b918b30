#!/usr/bin/env python3
"""Runs the training step of titan beside JAX and torch: same model, same initial values, same batch, same machine, one
process after the other, the sides taking turns in every round. Prints a table in Markdown; of every figure the least of
all rounds counts. Fails if losses differ from JAX's by more than --tolerance.

    bench/compare.py                     all models and columns, 3 rounds
    bench/compare.py --models llama_debug --columns titan,jax --rounds 5
    bench/compare.py --report FILE...    the table of earlier runs' lines

Lines go to outputs/bench/compare.jsonl, one for each process. Needs Linux, Go, and what bench/env.sh installs.
How figures are taken, and what was measured: docs/bench.md."""
import argparse, json, os, re, resource, shutil, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = ["llama_debug", "qwen3_moe_debug"]
# What KeepHostPages sets for titan, in the words of the baselines.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_ARENA_MAX": "1"}
# name: program, devices, allocator told to keep its pages
COLUMNS = {"titan": ("titan", 1, False), "jax": ("jax", 1, False), "jax+M": ("jax", 1, True), "torch": ("torch", 1, False), "torch+M": ("torch", 1, True),
           "titan8": ("titan", 8, False), "jax8": ("jax", 8, False), "jax8+M": ("jax", 8, True)}
TITLES = {"titan": "titan", "jax": "JAX", "jax+M": "JAX, M", "torch": "torch", "torch+M": "torch, M", "titan8": "titan, 8", "jax8": "JAX, 8", "jax8+M": "JAX, 8, M"}
# Losses of so many steps are compared. Later ones of the mixture of experts need not agree: rounding alone sends a token
# that two experts suit equally well to one here and to the other there.
SAME = 5
ROWS = [("step, CPU s", "step_cpu_min_s", "", "%.2f"), ("step, wall s", "step_min_s", "", "%.2f"),
        ("first loss, cold, s", "first_loss_s", "cold", "%.2f"), ("the same, CPU s", "first_loss_cpu_s", "cold", "%.2f"),
        ("first loss, warm, s", "first_loss_s", "warm", "%.2f"), ("the same, warm, CPU s", "first_loss_cpu_s", "warm", "%.2f"),
        ("peak RSS, MiB", "peak_rss_MiB", "cold", "%.0f"), ("temporaries, MiB a device", "temp_MiB_per_device", "cold", "%.0f")]

def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda known: lambda s: [n if n in known else p.error(f"there is no {n!r}; there are {', '.join(known)}") for n in s.split(",")]
    p.add_argument("--models", type=names(MODELS), default=MODELS); p.add_argument("--columns", type=names(list(COLUMNS)), default=list(COLUMNS))
    p.add_argument("--rounds", type=int, default=3); p.add_argument("--steps", type=int, default=6, help="timed steps of a process, after one that is not")
    p.add_argument("--wait", type=float, default=0, metavar="S", help="before each process wait up to S seconds for the machine to be idle")
    p.add_argument("--noise", type=float, metavar="SHARE", help="repeat a process, up to twice, while others had more than this share of the machine")
    p.add_argument("--quiet", type=float, default=1, metavar="SHARE", help="leave processes out of the table beside which others had more than this share of the machine")
    p.add_argument("--tolerance", type=float, default=1e-5, help="largest difference of a loss from JAX's (1e-5)")
    p.add_argument("--titan-flags", default="", help="more flags for bench/step, such as '--attn-block 64'")
    p.add_argument("--out", default=os.path.join(ROOT, "outputs", "bench", "compare.jsonl")); p.add_argument("--append", action="store_true", help="keep the lines that are there, and count them in")
    p.add_argument("--report", nargs="+", metavar="FILE", help="run nothing")
    return p.parse_args()

def clean_env():
    """The environment as installed: without settings that one side would have from the caller and not from its user."""
    gone = re.compile(r"MALLOC_|GLIBC_TUNABLES|LD_PRELOAD|XLA_|JAX_|TF_|OMP_|MKL_|TORCH_|TITAN_COMPILE_CACHE")
    return {k: v for k, v in os.environ.items() if not gone.match(k)}

def busy():
    """Processor seconds that all of the machine has spent on something, time taken by its host included."""
    with open("/proc/stat") as f: x = [int(v) for v in f.readline().split()[1:]]
    return (sum(x[:8]) - x[3] - x[4]) / os.sysconf("SC_CLK_TCK")

def wait_idle(limit):
    end = time.time() + limit
    while time.time() < end:
        b = busy(); time.sleep(2)
        if busy() - b < 0.1 * 2 * os.cpu_count(): return

def command(col, model, steps, o, tools, cache):
    program, devices, keep = COLUMNS[col]; env = clean_env()
    if keep: env.update(ALLOCATOR)
    args = ["--model", model, "--steps", str(steps), "--data", tools["data"]]
    if program == "titan": return [tools["titan"], *args, "--devices", str(devices), "--cache", cache, *o.titan_flags.split()], env
    if program == "torch": return [tools["torch"], f"{ROOT}/bench/torch_bench.py", *args], env
    if cache: env.update(JAX_COMPILATION_CACHE_DIR=cache, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1")
    return [tools["jax"], f"{ROOT}/bench/jax_bench.py", *args, "--devices", str(devices), *(["--moe", "block"] if "moe" in model else [])], env

def run(col, model, start, steps, o, tools, cache, out):
    """One side's turn. Each process adds its line to the file."""
    for _ in range(3):
        if start == "cold" and COLUMNS[col][0] == "titan": shutil.rmtree(cache, ignore_errors=True)
        if one(col, model, start, steps, o, tools, cache, out) <= (1 if o.noise is None or start == "prime" else o.noise): return

def one(col, model, start, steps, o, tools, cache, out):
    """Runs a process and returns what share of the machine others had meanwhile."""
    if o.wait: wait_idle(o.wait)
    cmd, env = command(col, model, steps, o, tools, cache)
    t, b, u = time.time(), busy(), resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run(cmd, env=env, capture_output=True, text=True)
    wall, u2 = time.time() - t, resource.getrusage(resource.RUSAGE_CHILDREN)
    if r.returncode: sys.exit(f"{' '.join(cmd)} ended with {r.returncode}:\n{r.stderr[-4000:]}")
    own = u2.ru_utime + u2.ru_stime - u.ru_utime - u.ru_stime
    line = json.loads(r.stdout.strip().splitlines()[-1])
    line.update(column=col, start=start, others=round(max(0, busy() - b - own) / (wall * os.cpu_count()), 3))
    if start != "prime":
        with open(out, "a") as f: f.write(json.dumps(line) + "\n")
    print(f"{time.strftime('%T')} {model:16} {col:8} {start:5} CPU {line['step_cpu_min_s']:.2f} s, wall {line['step_min_s']:.2f} s, first loss {line['first_loss_s']:.2f} s, "
          f"others {line['others']:.0%}", file=sys.stderr, flush=True)
    return line["others"]

def measure(o):
    tools = {p: subprocess.check_output([f"{ROOT}/bench/env.sh", p], text=True).strip() for p in {COLUMNS[c][0] for c in o.columns} | {"jax"} if p != "titan"}
    tools["titan"], tools["data"] = f"{ROOT}/bin/bench/step", f"{ROOT}/outputs/bench/data"
    subprocess.check_call(["go", "build", "-o", tools["titan"], "./bench/step"], cwd=ROOT, env={**os.environ, "CGO_ENABLED": "0"})
    subprocess.check_call([tools["jax"], f"{ROOT}/bench/fixture.py", tools["data"]])
    os.makedirs(os.path.dirname(os.path.abspath(o.out)), exist_ok=True)
    if not o.append and os.path.exists(o.out): os.remove(o.out)
    with tempfile.TemporaryDirectory(prefix="titan-bench-") as caches:
        for i in range(o.rounds):
            for model in o.models:
                order = o.columns[i % len(o.columns):] + o.columns[:i % len(o.columns)]
                for col in order:
                    program = COLUMNS[col][0]; cache = f"{caches}/{model}-{col}"
                    # titan train keeps what it compiles, so a cold start pays for that; JAX and torch do not unless told to.
                    run(col, model, "cold", o.steps, o, tools, cache if program == "titan" else "", o.out)
                    if program == "jax" and not os.path.exists(cache): run(col, model, "prime", 1, o, tools, cache, o.out)
                    if program != "torch": run(col, model, "warm", 2, o, tools, cache, o.out)

def report(lines, tolerance):
    """Prints the tables; returns whether all losses agree."""
    ok = True
    for model in MODELS:
        of = {c: [l for l in lines if l["model"] == model and l["column"] == c] for c in COLUMNS}
        cols = [c for c in COLUMNS if of[c]]
        if not cols: continue
        least = lambda c, key, start: min((l[key] for l in of[c] if start in ("", l["start"]) and key in l), default=None)
        print(f"\n**{model}**\n\n| | {' | '.join(TITLES[c] for c in cols)} |\n|---|{'---|' * len(cols)}")
        for title, key, start, fmt in ROWS:
            xs = [least(c, key, start) for c in cols]
            print(f"| {title} | {' | '.join('–' if x is None else fmt % x for x in xs)} |")
        for title, key, start, fmt in ROWS:
            cells = []
            for c in cols:
                x, base = least(c, key, start), COLUMNS[c][1]
                t = least("titan" if base == 1 else "titan8", key, start)
                cells.append("–" if x is None or t is None else "%.2f" % (t / x))
            print(f"| titan / it: {title} | {' | '.join(cells)} |")
        ref = next((l["losses"] for l in of["jax"] if l["start"] == "cold"), None)
        worst = {c: max((abs(x - y) for l in of[c] for x, y in zip(l["losses"][:SAME], ref)), default=0) for c in cols} if ref else {}
        if ref: print(f"| loss of {SAME} steps, off JAX by at most | {' | '.join('%.1g' % worst[c] for c in cols)} |")
        print(f"| processes; share of the machine others had | {' | '.join('%d; %s' % (sum(l['start'] == 'cold' for l in of[c]), '–'.join('%.0f%%' % (100 * f(l['others'] for l in of[c])) for f in (min, max))) for c in cols)} |")
        bad = {c: w for c, w in worst.items() if w > tolerance}
        if bad: ok = False; print(f"\nFAULT: losses differ from JAX's by more than {tolerance:g}: {bad}")
    return ok

def main():
    o = parse()
    if not o.report: measure(o)
    lines = []
    for f in o.report or [o.out]:
        with open(f) as f: lines += [json.loads(l) for l in f if l.strip()]
    return 0 if report([l for l in lines if l["others"] <= o.quiet], o.tolerance) else 1

if __name__ == "__main__": sys.exit(main())
