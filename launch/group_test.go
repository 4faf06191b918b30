package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

// port returns a coordinator's address that was free a moment ago.
func port(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// quick are limits for tests in which nobody is lost: long, but for how long
// answers are held back.
func quick(host string) Options {
	return Options{Join: time.Minute, Limit: time.Minute, Silence: time.Minute, Host: host, hold: 50 * time.Millisecond}
}

// member is the identity of a process of n.
func identityOf(process, n int, coordinator string) Identity {
	return Identity{Process: process, Processes: n, Slices: 1, Worker: process, Workers: n, Coordinator: coordinator}
}

// joined returns the members of a group of n, which meet over the loopback.
func joined(t *testing.T, n int, o func(process int) Options) []*Group {
	t.Helper()
	at := port(t)
	out, errs := make([]*Group, n), make([]error, n)
	each(n, func(i int) { out[i], errs[i] = Join(ctx, identityOf(i, n, at), o(i)) })
	for i := range errs {
		require.NoError(t, errs[i], "process %d", i)
	}
	return out
}

func hostN(i int) Options { return quick(fmt.Sprint("host-", i)) }

// silent are limits with which a process that says nothing is lost soon; one that
// only waits for the processor must not be.
func silent(i int) Options {
	o := hostN(i)
	o.Silence = 3 * time.Second
	return o
}

// each calls f for 0 ≤ i < n at the same time.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func leave(t *testing.T, groups []*Group) {
	t.Helper()
	errs := make([]error, len(groups))
	each(len(groups), func(i int) { errs[i] = groups[i].Leave() })
	for _, err := range errs {
		require.NoError(t, err)
	}
	for _, g := range groups {
		require.ErrorIs(t, context.Cause(g.Context()), errLeft)
	}
}

func TestExchange(t *testing.T) {
	groups := joined(t, 4, hostN)
	require.Equal(t, "2 (host-2)", groups[1].Name(2))
	for round := range 100 {
		each(len(groups), func(i int) {
			got, err := groups[i].Exchange(ctx, fmt.Sprint("round ", round), fmt.Appendf(nil, "%d of %d", i, round))
			if err != nil || len(got) != 4 || string(got[3]) != fmt.Sprintf("3 of %d", round) {
				t.Errorf("process %d, round %d: %q %v", i, round, got, err)
			}
		})
	}
	// Values, as plugins use them.
	require.NoError(t, groups[1].Put("a/key", []byte("value")))
	got, err := groups[3].Get("a/key", time.Minute)
	require.NoError(t, err)
	require.Equal(t, "value", string(got))
	got, err = groups[0].TryGet("a/key")
	require.NoError(t, err)
	require.Equal(t, "value", string(got))
	_, err = groups[2].TryGet("none")
	require.EqualError(t, err, `launch: there is no value "none" yet`)
	_, err = groups[2].Get("none", time.Millisecond)
	require.ErrorContains(t, err, `for the value "none"`)
	require.Error(t, groups[2].Put("large", make([]byte, maxMessage+1)))
	leave(t, groups)
}

// Who is not there is named, by host where that is known.
func TestMissing(t *testing.T) {
	at := port(t)
	id := Identity{Processes: 3, Slices: 1, Workers: 3, Hosts: []string{"w0", "w1", "w2"}, Coordinator: at}
	o := quick("here")
	o.Join = 100 * time.Millisecond
	_, err := Join(ctx, id, o)
	var missing *MissingError
	require.ErrorAs(t, err, &missing)
	require.EqualError(t, err, "launch: waited 100ms for all to come: missing process 1 (w1); 2 (w2)")

	id.Process = 1
	_, err = Join(ctx, id, o)
	require.ErrorContains(t, err, "launch: waited 100ms for all to come: missing process 0 ("+at+"), the coordinator, which does not answer: ")
	require.True(t, Passing(err))

	groups := joined(t, 3, func(i int) Options { return quick([]string{"w0", "w1", "w2"}[i]) })
	_, err = groups[1].ExchangeFor(ctx, 10*time.Millisecond, "save", nil)
	require.EqualError(t, err, `launch: waited 10ms in "save": missing process 0 (w0); 2 (w2)`)
	_, err = groups[0].ExchangeFor(ctx, 10*time.Millisecond, "save", nil)
	require.EqualError(t, err, `launch: waited 10ms in "save": missing process 2 (w2)`)
	// It comes after all: the others have given up, but nothing is broken.
	_, err = groups[2].ExchangeFor(ctx, time.Minute, "save", nil)
	require.NoError(t, err)
	leave(t, groups)
}

// A context that is done ends the wait of one process, not the exchange.
func TestExchangeCancelled(t *testing.T) {
	groups := joined(t, 2, hostN)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err := groups[1].Exchange(done, "k", []byte("sent nevertheless"))
	require.ErrorIs(t, err, context.Canceled)
	got, err := groups[0].Exchange(ctx, "k", nil)
	require.NoError(t, err)
	require.Equal(t, "sent nevertheless", string(got[1]))
	leave(t, groups)
}

// A process that fails says why, and everybody's wait ends at once.
func TestFail(t *testing.T) {
	groups := joined(t, 3, hostN)
	errs := make([]error, 3)
	each(3, func(i int) {
		if i == 2 {
			groups[2].Fail(errors.New("no space left on device"))
			return
		}
		_, errs[i] = groups[i].Exchange(ctx, "save", nil)
		<-groups[i].Context().Done()
		groups[i].Fail(errs[i])
	})
	for i := range 2 {
		require.EqualError(t, errs[i], "launch: process 2 (host-2) failed: no space left on device")
		require.ErrorContains(t, context.Cause(groups[i].Context()), "no space left")
		require.False(t, Passing(errs[i]))
	}
}

// Whether starting again may help is the same for all: one that waited in vain
// does not make its reason a mistake of others.
func TestPassing(t *testing.T) {
	groups := joined(t, 3, hostN)
	_, err := groups[2].ExchangeFor(ctx, 10*time.Millisecond, "k", nil)
	require.True(t, Passing(err), "%v", err)
	each(3, func(i int) {
		if i == 2 {
			groups[2].Fail(err)
			return
		}
		<-groups[i].Context().Done()
		cause := context.Cause(groups[i].Context())
		if !Passing(cause) || !strings.Contains(cause.Error(), "process 2 (host-2) failed: launch: waited 10ms") {
			t.Error(cause)
		}
		groups[i].Fail(cause)
	})
}

// The coordinator itself may fail.
func TestCoordinatorFails(t *testing.T) {
	groups := joined(t, 2, hostN)
	var err error
	each(2, func(i int) {
		if i == 0 {
			groups[0].Fail(errors.New("bad recipe"))
			return
		}
		_, err = groups[1].Exchange(ctx, "k", nil)
		_ = groups[1].Leave()
	})
	require.EqualError(t, err, "launch: process 0 (host-0) failed: bad recipe")
}

// A process that is gone without a word is found by its silence, and named.
func TestSilent(t *testing.T) {
	t.Parallel()
	groups := joined(t, 3, silent)
	groups[1].lose(errors.New("killed")) // it says nothing any more
	for _, i := range []int{0, 2} {
		<-groups[i].Context().Done()
		var f *Failure
		require.ErrorAs(t, context.Cause(groups[i].Context()), &f)
		require.True(t, f.Silent)
		require.True(t, Passing(f))
		require.Equal(t, "launch: process 1 (host-1) was not heard of for 3s", f.Error())
		_, err := groups[i].Exchange(ctx, "k", nil)
		require.ErrorContains(t, err, "host-1")
	}
	each(2, func(i int) { groups[2*i].Fail(errors.New("lost")) })
}

// So is the coordinator.
func TestCoordinatorSilent(t *testing.T) {
	t.Parallel()
	groups := joined(t, 2, silent)
	groups[0].lose(errors.New("killed"))
	groups[0].shut()
	<-groups[1].Context().Done()
	var f *Failure
	require.ErrorAs(t, context.Cause(groups[1].Context()), &f)
	require.True(t, f.Silent)
	require.Contains(t, f.Error(), "does not answer as coordinator for 3s")
	groups[1].Fail(f)
}

// A signal on one host: all stop at the same turn, which none of them has passed,
// wherever each of them is. A program ends only once all have begun it, and a
// process begins at most two that have not ended, as in training.
func TestStopTogether(t *testing.T) {
	const n, ahead = 4, 2
	for _, after := range []int{0, 1, 17} {
		groups := joined(t, n, hostN)
		var begun [1000]atomic.Int32
		var ended [1000]chan struct{}
		for i := range ended {
			ended[i] = make(chan struct{})
		}
		counts := make([]int, n)
		stops := make([]*Stop, n)
		each(n, func(i int) {
			for k := 0; ; k++ {
				if i == 2 && k == after {
					groups[i].Stop(int(syscall.SIGTERM))
				}
				stop, err := groups[i].Turn(ctx)
				if err != nil || stop != nil {
					if err != nil {
						t.Error(err)
					}
					counts[i], stops[i] = k, stop
					return
				}
				if begun[k].Add(1) == n {
					close(ended[k])
				}
				if k >= ahead {
					<-ended[k-ahead]
				}
				time.Sleep(time.Duration(i) * 100 * time.Microsecond) // some are slower
			}
		})
		for i := range n {
			require.Equal(t, counts[0], counts[i], "%v", counts)
			require.Equal(t, &Stop{Process: 2, Host: "host-2", Signal: int(syscall.SIGTERM)}, stops[i])
			require.Equal(t, stops[i], groups[i].Stopping())
			<-groups[i].Asked()
			again, err := groups[i].Turn(ctx)
			require.NoError(t, err)
			require.NotNil(t, again, "it stays so")
		}
		require.GreaterOrEqual(t, counts[0], after)
		if k := counts[0]; k > 0 {
			<-ended[k-1] // what was begun was begun by all
		}
		leave(t, groups)
	}
}

// Without the others there is no step to stop at.
func TestStopWithoutOne(t *testing.T) {
	t.Parallel()
	groups := joined(t, 2, silent)
	groups[1].lose(errors.New("killed"))
	groups[0].Stop(int(syscall.SIGTERM))
	<-groups[0].Asked()
	_, err := groups[0].Turn(ctx)
	require.ErrorContains(t, err, "host-1")
	groups[0].Fail(err)
}

func TestJoinRefuses(t *testing.T) {
	_, err := Join(ctx, Single(), Options{})
	require.EqualError(t, err, "launch: one process has nobody to join")
	_, err = Join(ctx, identityOf(0, 2, "nowhere"), Options{})
	require.ErrorContains(t, err, `the coordinator is "nowhere" and must be host:port`)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Join(ctx, identityOf(0, 2, l.Addr().String()), Options{})
	require.ErrorContains(t, err, "process 0 must listen on the port of "+EnvCoordinator)
	// Somebody else listens there.
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err = newClient(other.Listener.Addr().String())(ctx, request{Op: opWatch})
	require.EqualError(t, err, "404 Not Found: 404 page not found")
	// And somebody else asks.
	us := httptest.NewServer(newService(newTable(of(2), time.Minute)))
	defer us.Close()
	resp, err := http.Get(us.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	r, err := newClient(us.Listener.Addr().String())(ctx, request{Op: opJoin, Process: 7})
	require.NoError(t, err)
	require.Equal(t, "there is no process 7 among 2", r.Error)
}
