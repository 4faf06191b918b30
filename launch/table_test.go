package launch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// of returns the identity of process 0 of n.
func of(n int) Identity {
	return Identity{Processes: n, Slices: 1, Workers: n, Coordinator: "127.0.0.1:1"}
}

var noon = time.Unix(1_800_000_000, 0)

// full returns a table to which n processes have come.
func full(t *testing.T, n int) *table {
	tb := newTable(of(n), time.Second)
	for i := range n {
		require.False(t, tb.complete())
		require.NoError(t, tb.join(i, n, fmt.Sprint("nonce", i), fmt.Sprint("host-", i), noon))
	}
	require.True(t, tb.complete())
	return tb
}

func TestTableJoin(t *testing.T) {
	tb := newTable(of(3), time.Second)
	require.NoError(t, tb.join(0, 3, "a", "host-0", noon))
	require.NoError(t, tb.join(2, 3, "b", "host-2", noon))
	require.EqualError(t, tb.join(1, 2, "c", "host-1", noon), "process 1 (host-1) is one of 2, the coordinator 0 (host-0) is there for 3: all must be told the same number")
	require.Equal(t, "1", tb.names(tb.absent()))
	// Before all are there a process may be started again; the one before is told.
	require.NoError(t, tb.join(2, 3, "b2", "other", noon))
	require.EqualError(t, tb.begin(2, "b", noon), "another process has come as process 2 (other) since: two have the same number")
	require.NoError(t, tb.begin(2, "b2", noon))
	require.NoError(t, tb.join(1, 3, "c", "host-1", noon))
	require.NoError(t, tb.join(1, 3, "c", "host-1", noon), "coming twice is no harm")
	// Afterwards its state is lost with it.
	require.EqualError(t, tb.join(1, 3, "d", "host-9", noon), "launch: process 1 (host-1) has come a second time, now from host-9: it was started again by itself, or two processes have its number")
	require.Equal(t, 1, tb.failure.Process)
	require.False(t, tb.failure.Silent)
}

// Who has a request pending is alive, however old it is; who has none for too
// long is lost, unless it left.
func TestTableSilence(t *testing.T) {
	tb := full(t, 4)
	require.NoError(t, tb.begin(1, "nonce1", noon))
	tb.leave(2)
	tb.check(noon.Add(time.Second))
	require.Nil(t, tb.failure)
	tb.end(0, noon.Add(time.Second))
	tb.check(noon.Add(1001 * time.Millisecond))
	require.EqualError(t, tb.failure, "launch: process 3 (host-3) was not heard of for 1s")
	require.True(t, tb.failure.Silent)
	tb.fail(Failure{Reason: "something else"})
	require.Equal(t, 3, tb.failure.Process, "what came first counts")
	require.Equal(t, []int{1}, tb.stay(), "neither who left nor who is lost is waited for")
}

func TestTableRounds(t *testing.T) {
	tb := full(t, 3)
	give := func(p int, key, text string) bool {
		t.Helper()
		last, err := tb.give(p, key, []byte(text))
		require.NoError(t, err)
		return last
	}
	require.False(t, give(2, "k", "two"))
	require.False(t, give(0, "k", ""))
	require.False(t, give(0, "k", ""), "a request that is sent again")
	_, err := tb.give(2, "k", []byte("other"))
	require.EqualError(t, err, `process 2 (host-2) gives two messages under the key "k"`)
	got, gone := tb.take("k")
	require.Nil(t, got)
	require.NoError(t, gone)
	require.Equal(t, "1 (host-1)", tb.names(tb.missing("k")))
	require.True(t, give(1, "k", "one"))
	got, gone = tb.take("k")
	require.NoError(t, gone)
	require.Equal(t, "|one|two", fmt.Sprintf("%s|%s|%s", got[0], got[1], got[2]))

	give(0, "later", "")
	tb.leave(1)
	_, gone = tb.take("later")
	require.EqualError(t, gone, "launch: process 1 (host-1) has ended")

	// Old rounds are forgotten, those that are not complete are not.
	tb = full(t, 1)
	for i := range 3 * maxRounds {
		_, err := tb.give(0, fmt.Sprint(i), nil)
		require.NoError(t, err)
	}
	require.Len(t, tb.rounds, maxRounds)
	tb = full(t, 2)
	for i := range 3 * maxRounds {
		_, err := tb.give(0, fmt.Sprint(i), nil)
		require.NoError(t, err)
	}
	require.Len(t, tb.rounds, 3*maxRounds)
}

func TestTableNames(t *testing.T) {
	tb := newTable(of(12), time.Second)
	require.Equal(t, "0 (127.0.0.1); 1; 2; 3; 4; 5; 6; 7; and 4 more", tb.names(tb.absent()))
	tb = full(t, 3)
	require.Empty(t, tb.behind())
	for i, n := range []int64{7, 5, 7} {
		tb.members[i].turn = n
	}
	require.Equal(t, "others have begun 7 programs, process 1 (host-1) has begun 5", tb.behind())
	tb.ask(1, 15)
	tb.ask(2, 2)
	require.Equal(t, Stop{Process: 1, Host: "host-1", Signal: 15}, *tb.stop, "who asked first counts")
}
