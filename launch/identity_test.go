package launch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// env parses the lines of a recorded environment.
func env(text string) func(string) string {
	vars := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			vars[name] = value
		}
	}
	return func(name string) string { return vars[name] }
}

// Environments as launchers set them.
func TestFromEnv(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		want Identity
		says string
	}{
		"a laptop": {"HOME=/x", Single(), "one process: nothing in the environment says otherwise"},
		"one host of Cloud TPU": {`
			TPU_WORKER_ID=0
			TPU_WORKER_HOSTNAMES=localhost
			TPU_ACCELERATOR_TYPE=v5litepod-8
			TPU_TOPOLOGY=2x4`,
			Identity{Processes: 1, Slices: 1, Workers: 1, Hosts: []string{"localhost"}, Accelerator: "v5litepod-8", Topology: "2x4", Source: EnvHostnames},
			"one process: TPU_WORKER_HOSTNAMES"},
		"a host of Cloud TPU with a worker id alone": {"TPU_WORKER_ID=0", Single(), "one process"},
		"GKE, one slice of 4 hosts": {`
			TPU_WORKER_ID=2
			TPU_WORKER_HOSTNAMES=job-0.svc,job-1.svc,job-2.svc,job-3.svc
			TPU_ACCELERATOR_TYPE=tpu-v5-lite-podslice
			TPU_TOPOLOGY=4x4`,
			Identity{Process: 2, Processes: 4, Slices: 1, Worker: 2, Workers: 4, Hosts: []string{"job-0.svc", "job-1.svc", "job-2.svc", "job-3.svc"},
				Coordinator: "job-0.svc:8491", Accelerator: "tpu-v5-lite-podslice", Topology: "4x4", Source: EnvHostnames},
			"process 2 of 4 (tpu-v5-lite-podslice, 4x4), coordinator job-0.svc:8491, by TPU_WORKER_HOSTNAMES"},
		"addresses with ports go first": {`
			TPU_WORKER_ID=1
			TPU_PROCESS_ADDRESSES=10.0.0.1:8476,[fd00::2]:8476
			TPU_WORKER_HOSTNAMES=other`,
			Identity{Process: 1, Processes: 2, Slices: 1, Worker: 1, Workers: 2, Hosts: []string{"10.0.0.1", "fd00::2"}, Coordinator: "10.0.0.1:8491", Source: EnvAddresses},
			"process 1 of 2, coordinator 10.0.0.1:8491, by TPU_PROCESS_ADDRESSES"},
		"JobSet, the second of two slices of 2 hosts": {`
			TPU_WORKER_ID=1
			TPU_WORKER_HOSTNAMES=run-slice-1-0.run,run-slice-1-1.run
			TPU_TOPOLOGY=2x2x2
			MEGASCALE_COORDINATOR_ADDRESS=run-slice-0-0.run
			MEGASCALE_NUM_SLICES=2
			MEGASCALE_SLICE_ID=1
			MEGASCALE_PORT=8080`,
			Identity{Process: 3, Processes: 4, Slice: 1, Slices: 2, Worker: 1, Workers: 2, Hosts: []string{"run-slice-1-0.run", "run-slice-1-1.run"},
				Coordinator: "run-slice-0-0.run:8491", Topology: "2x2x2", Source: EnvHostnames},
			"process 3 of 4, worker 1 of slice 1 (2x2x2), coordinator run-slice-0-0.run:8491"},
		"slices of one host, and a coordinator with a port": {`
			TPU_WORKER_HOSTNAMES=localhost
			MEGASCALE_COORDINATOR_ADDRESS=10.1.0.9:8080
			MEGASCALE_NUM_SLICES=4
			MEGASCALE_SLICE_ID=2`,
			Identity{Process: 2, Processes: 4, Slice: 2, Slices: 4, Workers: 1, Hosts: []string{"localhost"}, Coordinator: "10.1.0.9:8491", Source: EnvHostnames},
			"process 2 of 4, worker 0 of slice 2"},
		"the coordinator can be set": {`
			TPU_WORKER_ID=0
			TPU_WORKER_HOSTNAMES=a, b
			TITAN_COORDINATOR=a:9000`,
			Identity{Processes: 2, Slices: 1, Workers: 2, Hosts: []string{"a", "b"}, Coordinator: "a:9000", Source: EnvHostnames}, "coordinator a:9000"},
		"any launcher, which goes before what Cloud TPU says": {`
			TITAN_NUM_PROCESSES=3
			TITAN_PROCESS_ID=2
			TITAN_COORDINATOR=127.0.0.1:4000
			TPU_WORKER_HOSTNAMES=a,b`,
			Identity{Process: 2, Processes: 3, Slices: 1, Worker: 2, Workers: 3, Coordinator: "127.0.0.1:4000", Source: EnvProcesses},
			"process 2 of 3, coordinator 127.0.0.1:4000, by TITAN_NUM_PROCESSES"},
		"any launcher, alone": {"TITAN_NUM_PROCESSES=1\nTITAN_PROCESS_ID=0", Identity{Processes: 1, Slices: 1, Workers: 1, Source: EnvProcesses}, "one process: TITAN_NUM_PROCESSES"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromEnv(env(c.env))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Contains(t, got.String(), c.says)
		})
	}
}

// Errors name the variable and what it holds.
func TestFromEnvRefuses(t *testing.T) {
	for vars, want := range map[string][]string{
		"TITAN_PROCESS_ID=1":                                                                                    {`TITAN_PROCESS_ID is "1", but TITAN_NUM_PROCESSES is not set`},
		"TITAN_NUM_PROCESSES=x\nTITAN_PROCESS_ID=0":                                                             {`TITAN_NUM_PROCESSES is "x" and must be a number from 1 to`},
		"TITAN_NUM_PROCESSES=2\nTITAN_PROCESS_ID=2\nTITAN_COORDINATOR=a:1":                                      {`TITAN_PROCESS_ID is "2" and must be a number from 0 to 1`},
		"TITAN_NUM_PROCESSES=2":                                                                                 {"TITAN_PROCESS_ID is not set; it must be 0 to 1", "TITAN_COORDINATOR is not set"},
		"TITAN_NUM_PROCESSES=2\nTITAN_PROCESS_ID=0\nTITAN_COORDINATOR=a":                                        {`TITAN_COORDINATOR is "a" and must be host:port`},
		"TITAN_NUM_PROCESSES=2\nTITAN_PROCESS_ID=0\nTITAN_COORDINATOR=a:0":                                      {`TITAN_COORDINATOR is "a:0"`},
		"TPU_WORKER_ID=3":                                                                                       {`TPU_WORKER_ID is "3", but neither TPU_WORKER_HOSTNAMES nor`},
		"TPU_WORKER_HOSTNAMES=a,b":                                                                              {"TPU_WORKER_ID is not set, but TPU_WORKER_HOSTNAMES lists 2 hosts (a,b)"},
		"TPU_WORKER_HOSTNAMES=a,b\nTPU_WORKER_ID=2":                                                             {`TPU_WORKER_ID is "2" and must be the number of one of the 2 hosts in TPU_WORKER_HOSTNAMES (a,b)`},
		"TPU_WORKER_HOSTNAMES=a,,b\nTPU_WORKER_ID=0":                                                            {`TPU_WORKER_HOSTNAMES is "a,,b": entry 1 names no host`},
		"TPU_WORKER_HOSTNAMES=a,b\nTPU_WORKER_ID=0\nTPU_TOPOLOGY=huge":                                          {`TPU_TOPOLOGY is "huge"`},
		"TPU_WORKER_HOSTNAMES=a,b,c\nTPU_WORKER_ID=0\nTPU_TOPOLOGY=4x4":                                         {`TPU_TOPOLOGY is "4x4", 16 chips, which do not divide over the 3 hosts`},
		"MEGASCALE_NUM_SLICES=2\nMEGASCALE_SLICE_ID=0":                                                          {`MEGASCALE_NUM_SLICES is "2", but neither`},
		"TPU_WORKER_HOSTNAMES=a\nMEGASCALE_NUM_SLICES=2":                                                        {"MEGASCALE_SLICE_ID is not set; it must be 0 to 1", "MEGASCALE_COORDINATOR_ADDRESS is not set"},
		"TPU_WORKER_HOSTNAMES=a\nMEGASCALE_SLICE_ID=1":                                                          {`MEGASCALE_SLICE_ID is "1", but MEGASCALE_NUM_SLICES is ""`},
		"TPU_WORKER_HOSTNAMES=a\nMEGASCALE_NUM_SLICES=two":                                                      {`MEGASCALE_NUM_SLICES is "two"`},
		"TPU_WORKER_HOSTNAMES=a\nMEGASCALE_NUM_SLICES=2\nMEGASCALE_SLICE_ID=5\nMEGASCALE_COORDINATOR_ADDRESS=b": {`MEGASCALE_SLICE_ID is "5" and must be a number from 0 to 1`},
		"TPU_WORKER_HOSTNAMES=a\nMEGASCALE_NUM_SLICES=2\nMEGASCALE_SLICE_ID=0\nMEGASCALE_COORDINATOR_ADDRESS=b\nMEGASCALE_PORT=8491": {`MEGASCALE_PORT is "8491", and so is the port of titan's coordinator b:8491`},
	} {
		_, err := FromEnv(env(vars))
		require.Error(t, err, vars)
		for _, w := range want {
			require.ErrorContains(t, err, w, vars)
		}
	}
}

// Names of hosts that have not come yet.
func TestIdentityName(t *testing.T) {
	id, err := FromEnv(env("TPU_WORKER_ID=0\nTPU_WORKER_HOSTNAMES=a,b\nMEGASCALE_NUM_SLICES=2\nMEGASCALE_SLICE_ID=0\nMEGASCALE_COORDINATOR_ADDRESS=a"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "worker 0 of slice 1", "worker 1 of slice 1"}, []string{id.Name(0), id.Name(1), id.Name(2), id.Name(3)})
	id, err = FromEnv(env("TITAN_NUM_PROCESSES=2\nTITAN_PROCESS_ID=1\nTITAN_COORDINATOR=10.0.0.7:4000"))
	require.NoError(t, err)
	require.Equal(t, "10.0.0.7", id.Name(0))
	require.Empty(t, id.Name(1))
}
