package launch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// EnvSkipMetadata, if set, says not to ask the metadata server, as to libtpu.
const EnvSkipMetadata = "TPU_SKIP_MDS_QUERY"

// Metadata asks the metadata server of a machine of Cloud TPU for an attribute. A
// server elsewhere than at metadata.google.internal is in GCE_METADATA_IP.
func Metadata(ctx context.Context, env func(string) string) func(attribute string) (string, error) {
	at := env("GCE_METADATA_IP")
	if at == "" {
		at = "metadata.google.internal"
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}} // no proxy
	return func(attribute string) (string, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/computeMetadata/v1/instance/attributes/"+attribute, nil)
		if err != nil {
			return "", err
		}
		q.Header.Set("Metadata-Flavor", "Google")
		r, err := client.Do(q)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		raw, err := io.ReadAll(io.LimitReader(r.Body, maxMessage))
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", r.Status)
		}
		return string(raw), err
	}
}

// WithMetadata fills in, from the machine's attributes, the variables for FromEnv
// that are not set: machines of Cloud TPU have them there, pods of GKE in their
// environment. Where there are no attributes env stays as it is. An attribute
// that cannot be understood is an error.
func WithMetadata(env func(string) string, attribute func(string) (string, error)) (func(string) string, error) {
	for _, name := range []string{EnvProcesses, EnvHostnames, EnvAddresses, EnvSkipMetadata} {
		if env(name) != "" {
			return env, nil
		}
	}
	worker, err := attribute("agent-worker-number")
	if err != nil {
		return env, nil // not a machine of Cloud TPU
	}
	endpoints, err := attribute("worker-network-endpoints")
	if err != nil {
		return nil, fmt.Errorf("launch: the machine's attribute worker-network-endpoints cannot be read: %w; set %s and %s", err, EnvHostnames, EnvWorker)
	}
	var hosts []string
	for _, e := range strings.Split(endpoints, ",") {
		// A host, or in the older form name:number:address.
		switch parts := strings.Split(strings.TrimSpace(e), ":"); len(parts) {
		case 1:
			hosts = append(hosts, parts[0])
		case 3:
			hosts = append(hosts, parts[2])
		default:
			return nil, fmt.Errorf("launch: the machine's attribute worker-network-endpoints is %q; entries are hosts, or name:number:address; set %s and %s", endpoints, EnvHostnames, EnvWorker)
		}
	}
	found := map[string]string{}
	if list, err := attribute("tpu-env"); err == nil { // not every machine has it
		for _, line := range strings.Split(list, "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok {
				found[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), "'")
			}
		}
	}
	found[EnvWorker], found[EnvHostnames] = strings.TrimSpace(worker), strings.Join(hosts, ",")
	return func(name string) string {
		if v := env(name); v != "" {
			return v
		}
		return found[name]
	}, nil
}
