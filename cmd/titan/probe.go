package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"titan/pjrt"
	"titan/pjrt/plugins"
)

// probed is what a plugin says of itself. It is asked in a process of its own:
// a broken library may crash or hang whoever loads it.
type probed struct {
	API      string `json:"api"`
	Platform string `json:"platform,omitempty"`
	Devices  int    `json:"devices,omitempty"`
	Compiles bool   `json:"compiles"`
	Problem  string `json:"problem,omitempty"`
	// Missing are libraries it will load and would not find.
	Missing []plugins.Need `json:"missing,omitempty"`
}

// probeTopology is what a plugin without a device here compiles for.
var probeTopology = map[string]string{"tpu": "v5e:2x2"}

const probeProgram = `module @probe {
  func.func public @main(%x: tensor<8x128xf32>) -> tensor<8x128xf32> {
    %y = stablehlo.add %x, %x : tensor<8x128xf32>
    return %y : tensor<8x128xf32>
  }
}
`

func newPluginProbe() *cobra.Command {
	return &cobra.Command{
		Use: "probe NAME PATH", Hidden: true,
		Args: exactly(2, "a plugin name and a path"),
		RunE: func(c *cobra.Command, args []string) error {
			return json.NewEncoder(c.OutOrStdout()).Encode(probeHere(args[0], args[1]))
		},
	}
}

// probeHere opens the plugin in this process and compiles a program with it.
func probeHere(name, path string) (p probed) {
	p.Missing = plugins.Missing(name)
	env := map[string]string{"TF_CPP_MIN_LOG_LEVEL": "2"}
	maps.Copy(env, plugins.CompileOnlyEnv(name))
	plugin, err := pjrt.OpenWith(path, pjrt.OpenOptions{Env: env})
	if err == nil {
		major, minor := plugin.APIVersion()
		p.API = fmt.Sprintf("%d.%d", major, minor)
		if topology := probeTopology[name]; topology != "" {
			err = p.compileFor(plugin, topology)
		} else {
			err = p.compileHere(plugin)
		}
	}
	if err != nil {
		p.Problem = err.Error()
	}
	return p
}

// compileFor compiles without a device.
func (p *probed) compileFor(plugin *pjrt.Plugin, topology string) error {
	t, err := plugin.NewTopology(topology, nil)
	if err != nil {
		return err
	}
	defer t.Close()
	x, err := t.Compile([]byte(probeProgram), pjrt.CompileOptions{OptLevel: pjrt.LevelO0})
	if err != nil {
		return err
	}
	p.Platform, p.Compiles = "compiles for TPU topologies", true
	return x.Close()
}

// compileHere compiles for the devices of this machine.
func (p *probed) compileHere(plugin *pjrt.Plugin) error {
	client, err := plugin.NewClient(pjrt.ClientOptions{})
	if err != nil {
		return err
	}
	defer client.Close()
	p.Platform, p.Devices = client.Platform(), len(client.Devices())
	x, err := client.Compile([]byte(probeProgram), pjrt.CompileOptions{})
	if err != nil {
		return err
	}
	p.Compiles = true
	return x.Close()
}

// probeTime is how long a plugin may take to load and compile.
var probeTime = 2 * time.Minute

// probe asks the plugin in a process of its own. What it said before it failed
// comes with the error.
func probe(ctx context.Context, name, path string) (probed, error) {
	self, err := os.Executable()
	if err != nil {
		return probed{}, err
	}
	limited, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(limited, self, "plugin", "probe", name, path)
	cmd.WaitDelay = time.Second // for what it may have started
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return probed{}, ctx.Err()
	case limited.Err() != nil:
		return probed{}, fmt.Errorf("loading %s: no answer within %v", path, probeTime)
	case err != nil:
		return probed{}, fmt.Errorf("loading %s: the process died (%w): %s", path, err, deathCause(stderr.String()))
	}
	// The plugin may write to standard output as well; the answer is the last line.
	var p probed
	if err := json.Unmarshal([]byte(lastLine(string(out))), &p); err != nil {
		return p, fmt.Errorf("loading %s: the process ended without an answer", path)
	}
	if p.Problem != "" {
		return p, errors.New(p.Problem)
	}
	return p, nil
}

// deathCause picks the line that says why a process died from what it wrote:
// the head of Go's report on a signal or panic, else the last line.
func deathCause(stderr string) string {
	for line := range strings.Lines(stderr) {
		for _, head := range []string{"SIG", "fatal error: ", "panic: "} {
			if strings.HasPrefix(line, head) {
				return strings.TrimSpace(line)
			}
		}
	}
	return lastLine(stderr)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
