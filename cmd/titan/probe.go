package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"titan/pjrt"
)

// probed is what a plugin says of itself. It is asked in a process of its own:
// a broken library may crash or hang whoever loads it.
type probed struct {
	API      string `json:"api"`
	Platform string `json:"platform,omitempty"`
	Devices  int    `json:"devices,omitempty"`
	Compiles bool   `json:"compiles"`
	Problem  string `json:"problem,omitempty"`
}

// probeTopology is what a plugin without a device here compiles for.
var probeTopology = map[string]string{"tpu": "v5e:2x2"}

// tpuEnv lets libtpu work on a machine without a TPU.
var tpuEnv = map[string]string{
	"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4",
	"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0",
}

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

func probeHere(name, path string) (p probed) {
	env := map[string]string{"TF_CPP_MIN_LOG_LEVEL": "2"}
	if name == "tpu" {
		for k, v := range tpuEnv {
			env[k] = v
		}
	}
	plugin, err := pjrt.OpenWith(path, pjrt.OpenOptions{Env: env})
	if err != nil {
		return probed{Problem: err.Error()}
	}
	major, minor := plugin.APIVersion()
	p.API = fmt.Sprintf("%d.%d", major, minor)
	if topology := probeTopology[name]; topology != "" {
		t, err := plugin.NewTopology(topology, nil)
		if err != nil {
			p.Problem = err.Error()
			return p
		}
		defer t.Close()
		p.Platform, p.Devices = "compiles for TPU topologies", 0
		x, err := t.Compile([]byte(probeProgram), pjrt.CompileOptions{OptLevel: pjrt.LevelO0})
		if err != nil {
			p.Problem = err.Error()
			return p
		}
		p.Compiles = true
		_ = x.Close()
		return p
	}
	client, err := plugin.NewClient(pjrt.ClientOptions{})
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	defer client.Close()
	p.Platform, p.Devices = client.Platform(), len(client.Devices())
	x, err := client.Compile([]byte(probeProgram), pjrt.CompileOptions{})
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	p.Compiles = true
	_ = x.Close()
	return p
}

// probe asks the plugin in a process of its own, for at most two minutes.
func probe(ctx context.Context, name, path string) (probed, error) {
	self, err := os.Executable()
	if err != nil {
		return probed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "plugin", "probe", name, path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return probed{}, fmt.Errorf("loading %s: %w: %s", path, err, lines[len(lines)-1])
	}
	// The plugin may write to standard output as well; the answer is the last line.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var p probed
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &p); err != nil {
		return p, fmt.Errorf("loading %s: unreadable answer: %w", path, err)
	}
	if p.Problem != "" {
		return p, fmt.Errorf("%s", p.Problem)
	}
	return p, nil
}
