package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The doctor starts its own program to load plugins, and tests start commands
// that they kill: here, the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == "plugin" && os.Args[2] == "probe" || os.Args[1] == "plan" || os.Args[1] == "train" || os.Args[1] == "config") {
		os.Exit(run(os.Args[1:]))
	}
	code := m.Run()
	if dir, err := compiled(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// titan runs the command line and returns its exit code and what it wrote.
func titan(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	redirect := func(to **os.File, name string) (restore func() string) {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		old := *to
		*to = f
		return func() string {
			*to = old
			require.NoError(t, f.Close())
			raw, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			return string(raw)
		}
	}
	out, errs := redirect(&os.Stdout, "stdout"), redirect(&os.Stderr, "stderr")
	code = run(args)
	return code, out(), errs()
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"frobnicate"}, "titan: unknown command \"frobnicate\" (see `titan --help`)\n"},
		{[]string{"docter"}, "titan: unknown command \"docter\"; did you mean \"doctor\"? (see `titan --help`)\n"},
		{[]string{"plugin", "instal"}, "titan: unknown command \"instal\"; did you mean \"install\"? (see `titan plugin --help`)\n"},
		{[]string{"--frob"}, "titan: unknown flag: --frob; see `titan --help`\n"},
		{[]string{"doctor", "--jsn"}, "titan: unknown flag: --jsn; see `titan doctor --help`\n"},
		{[]string{"plugin", "install", "--force=maybe", "cpu"}, "see `titan plugin install --help`\n"},
		{[]string{"plugin", "install", "--wheel"}, "titan: flag needs an argument: --wheel; see `titan plugin install --help`\n"},
		{[]string{"plugin", "install"}, "titan: `titan plugin install` needs one plugin name (cpu, tpu, cuda); see `titan plugin install --help`\n"},
		{[]string{"plugin", "install", "cpu", "tpu"}, "needs one plugin name"},
		{[]string{"plugin", "install", "gpu"}, "titan: unknown plugin \"gpu\"; there are cpu, tpu, cuda\n"},
		{[]string{"plugin", "remove", "gpu"}, "titan: unknown plugin \"gpu\"; there are cpu, tpu, cuda\n"},
		{[]string{"plugin", "list", "cpu"}, "titan: `titan plugin list` needs no arguments; see"},
		{[]string{"version", "1"}, "titan: `titan version` needs no arguments; see"},
		{[]string{"doctor", "cpu"}, "titan: `titan doctor` needs no arguments; see"},
		{[]string{"profile", "x"}, "titan: `titan profile` needs no arguments; see"},
		{[]string{"profile", "--steps=0"}, "titan: --warmup is 3 and --steps 0: there must be at least one step to trace; see `titan profile --help`\n"},
		{[]string{"plugin", "probe", "cpu"}, "titan: `titan plugin probe` needs a plugin name and a path; see"},
	} {
		code, stdout, stderr := titan(t, c.args...)
		require.Equal(t, 2, code, "%q: %s", c.args, stderr)
		require.Contains(t, stderr, c.says)
		require.Empty(t, stdout, "%q", c.args)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		code, stdout, stderr := titan(t, args...)
		require.Equal(t, 0, code, stderr)
		for _, verb := range []string{"doctor", "plugin", "version"} {
			require.Contains(t, stdout, "\n  "+verb+" ")
		}
	}
	code, stdout, _ := titan(t, "plugin")
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "\n  install ")
	require.NotContains(t, stdout, "probe", "it is for titan itself")
	code, stdout, _ = titan(t, "version")
	require.Equal(t, 0, code)
	require.Regexp(t, `^titan \S+ go1\.\d+\S* \w+/\w+\n$`, stdout)
}

// A failure that is nobody's mistake on the command line is exit code 1.
func TestFailures(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	code, stdout, stderr := titan(t, "plugin", "remove", "tpu")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "titan: the tpu plugin is not installed; run `titan plugin install tpu`, or set TITAN_PLUGIN_TPU")

	wheel := filepath.Join(t.TempDir(), "libtpu.whl")
	require.NoError(t, os.WriteFile(wheel, []byte("no wheel"), 0o644))
	code, stdout, stderr = titan(t, "plugin", "install", "tpu", "--wheel", wheel)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "titan: installing the tpu plugin: the wheel libtpu.whl has sha256 ")
}

// A panic is a bug of titan: the user sees one line, the report has the rest.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	old := os.Stderr
	os.Stderr = stderr
	code := crash([]string{"train", "x"}, "index out of range", []byte("the stack"))
	os.Stderr = old
	require.NoError(t, stderr.Close())
	require.Equal(t, 70, code)
	reports, err := filepath.Glob(filepath.Join(dir, "titan-crash-*", "report.txt"))
	require.NoError(t, err)
	require.Len(t, reports, 1)
	said, err := os.ReadFile(stderr.Name())
	require.NoError(t, err)
	require.Equal(t, "titan: this is a bug: index out of range; please report it with "+reports[0]+"\n", string(said))
	report, err := os.ReadFile(reports[0])
	require.NoError(t, err)
	for _, want := range []string{`arguments: ["train" "x"]`, "panic: index out of range", "the stack"} {
		require.Contains(t, string(report), want)
	}
}

// Output that cannot be written is a failure, whoever prints it.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = full
	for _, args := range [][]string{{"version"}, {"config", "list"}, {"plan", "--list-topologies"}} {
		require.Equal(t, 1, run(args), "%v", args)
	}
}
