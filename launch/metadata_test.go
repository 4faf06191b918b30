package launch

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Machines of Cloud TPU say in attributes what pods say in variables.
func TestWithMetadata(t *testing.T) {
	attributes := map[string]string{
		"agent-worker-number":      "1",
		"worker-network-endpoints": "unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2",
		"tpu-env":                  "ACCELERATOR_TYPE: 'v4-16'\nMEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\nMEGASCALE_COORDINATOR_ADDRESS: '10.9.0.1'\n",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := attributes[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		if !ok || r.Header.Get("Metadata-Flavor") != "Google" || !strings.HasPrefix(r.URL.Path, "/computeMetadata/v1/instance/attributes/") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, v)
	}))
	defer server.Close()
	from := func(vars string) (Identity, error) {
		base := env("GCE_METADATA_IP=" + server.Listener.Addr().String() + "\n" + vars)
		e, err := WithMetadata(base, Metadata(ctx, base))
		if err != nil {
			return Identity{}, err
		}
		return FromEnv(e)
	}
	id, err := from("")
	require.NoError(t, err)
	require.Equal(t, Identity{Process: 3, Processes: 4, Slice: 1, Slices: 2, Worker: 1, Workers: 2, Hosts: []string{"10.0.0.1", "10.0.0.2"}, Coordinator: "10.9.0.1:8491", Source: EnvHostnames}, id)

	delete(attributes, "tpu-env")
	attributes["worker-network-endpoints"] = "10.0.0.7, 10.0.0.8"
	id, err = from("")
	require.NoError(t, err)
	require.Equal(t, "process 1 of 2, coordinator 10.0.0.7:8491, by TPU_WORKER_HOSTNAMES", id.String())

	// What is set counts, and who is told not to ask does not.
	id, err = from("TPU_WORKER_HOSTNAMES=a,b,c\nTPU_WORKER_ID=2")
	require.NoError(t, err)
	require.Equal(t, 3, id.Processes)
	id, err = from(EnvSkipMetadata + "=true")
	require.NoError(t, err)
	require.Equal(t, Single(), id)

	attributes["worker-network-endpoints"] = "a:b"
	_, err = from("")
	require.ErrorContains(t, err, `worker-network-endpoints is "a:b"`)
	delete(attributes, "worker-network-endpoints")
	_, err = from("")
	require.ErrorContains(t, err, "worker-network-endpoints cannot be read: 404 Not Found")
	delete(attributes, "agent-worker-number")
	id, err = from("")
	require.NoError(t, err)
	require.Equal(t, Single(), id, "another machine")

	e, err := WithMetadata(env("A=b"), func(string) (string, error) { return "", errors.New("no such host") })
	require.NoError(t, err)
	require.Equal(t, "b", e("A"))
}
