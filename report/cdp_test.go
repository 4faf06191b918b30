package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium that is driven through its pipe, by the DevTools
// protocol: messages of JSON that end with a zero byte.
type browser struct {
	t       *testing.T
	to      io.WriteCloser
	session string

	mu      sync.Mutex
	next    int
	answers map[int]chan answer
	events  []event
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

type event struct {
	Method string
	Params json.RawMessage
}

// findBrowser skips the test where there is no Chromium; make deps installs it.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("TITAN_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: the page is not tried in a browser. Install it (Debian: apt-get install chromium), or name one in TITAN_CHROMIUM")
	return ""
}

// patience is how long a browser may take to answer on a busy machine.
const patience = 2 * time.Minute

// openBrowser starts Chromium with an empty page.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path := findBrowser(t)
	in, to, err := os.Pipe()
	require.NoError(t, err)
	from, out, err := os.Pipe()
	require.NoError(t, err)
	// No sandbox: the page is ours, and containers often cannot have one.
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // its descriptors 3 and 4
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	require.NoError(t, out.Close())
	b := &browser{t: t, to: to, answers: map[int]chan answer{}}
	gone := make(chan struct{})
	go func() { b.listen(from); close(gone) }()
	t.Cleanup(func() {
		b.call("", "Browser.close", nil)
		_ = cmd.Wait()
		_ = to.Close()
		<-gone
		_ = from.Close()
	})
	target := b.call("", "Target.createTarget", map[string]any{"url": "about:blank"})
	attached := b.call("", "Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})
	b.session = attached["sessionId"].(string)
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.do(domain+".enable", nil)
	}
	return b
}

// listen sorts what the browser says.
func (b *browser) listen(from io.Reader) {
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID int
			answer
			event
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.answers[m.ID]; m.ID > 0 && c != nil {
			delete(b.answers, m.ID)
			c <- m.answer
		} else if m.Method != "" {
			b.events = append(b.events, m.event)
		}
		b.mu.Unlock()
	}
}

// call asks the browser, or one of its pages.
func (b *browser) call(session, method string, params map[string]any) map[string]any {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id, c := b.next, make(chan answer, 1)
	b.answers[id] = c
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(text, 0))
	require.NoError(b.t, err)
	select {
	case a := <-c:
		if a.Error != nil {
			require.Fail(b.t, method, a.Error.Message)
		}
		out := map[string]any{}
		if len(a.Result) > 0 {
			require.NoError(b.t, json.Unmarshal(a.Result, &out))
		}
		return out
	case <-time.After(patience):
		require.Fail(b.t, "the browser does not answer", method)
		return nil
	}
}

func (b *browser) do(method string, params map[string]any) map[string]any {
	b.t.Helper()
	return b.call(b.session, method, params)
}

// eval runs an expression in the page and reads its value.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	out := b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if e, failed := out["exceptionDetails"]; failed {
		require.Fail(b.t, "the page threw", "%v in %s", e, expression)
	}
	text, err := json.Marshal(out["result"].(map[string]any)["value"])
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text, into))
}

// visit loads a page and waits until it is there.
func (b *browser) visit(url string) {
	b.t.Helper()
	b.mu.Lock()
	b.events = nil
	b.mu.Unlock()
	b.do("Page.navigate", map[string]any{"url": url})
	b.until("document.readyState === 'complete' && location.href !== 'about:blank'")
}

// until waits for a condition in the page.
func (b *browser) until(condition string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; {
		var ok bool
		if b.eval("Boolean("+condition+")", &ok); ok {
			return
		}
		require.True(b.t, time.Now().Before(end), "never came true: %s", condition)
		time.Sleep(20 * time.Millisecond)
	}
}

// complaints are errors on the console, exceptions, and requests besides the page
// itself.
func (b *browser) complaints(page string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, e := range b.events {
		var p struct {
			Type    string
			Entry   struct{ Level, Text, URL string }
			Request struct{ URL string }
		}
		if json.Unmarshal(e.Params, &p) != nil {
			continue
		}
		switch e.Method {
		case "Runtime.exceptionThrown":
			out = append(out, string(e.Params))
		case "Runtime.consoleAPICalled":
			if p.Type == "error" || p.Type == "warning" {
				out = append(out, string(e.Params))
			}
		case "Log.entryAdded":
			if p.Entry.Level == "error" || p.Entry.Level == "warning" {
				out = append(out, fmt.Sprintf("%s: %s", p.Entry.URL, p.Entry.Text))
			}
		case "Network.requestWillBeSent":
			if p.Request.URL != page && p.Request.URL != "data:," {
				out = append(out, "request of "+p.Request.URL)
			}
		}
	}
	return out
}
