package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// newClient returns how a process calls the coordinator at an address.
func newClient(address string) func(context.Context, request) (reply, error) {
	// No proxy of the environment: it is meant for what lies outside.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	url := "http://" + address + path
	return func(ctx context.Context, q request) (reply, error) {
		var r reply
		body, err := json.Marshal(q)
		if err != nil {
			return r, err
		}
		hr, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return r, err
		}
		resp, err := client.Do(hr)
		if err != nil {
			return r, err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return r, err
		}
		if resp.StatusCode != http.StatusOK {
			return r, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(raw)))
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return r, fmt.Errorf("%s answers with what is no answer of titan: %w", address, err)
		}
		return r, nil
	}
}
