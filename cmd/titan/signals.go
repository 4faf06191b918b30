package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long a command may take to end when it was asked to. Some cannot
// be asked: they wait for a file, a plugin or its compiler.
const grace = 3 * time.Second

// endOnSignal returns a context that the first SIGINT or SIGTERM cancels. The
// process ends with a second one, or if the command goes on for longer than
// grace. Nothing half-written is left then either: files get their names when
// they are whole. stop ends all this.
//
// [signal.Reset] hands the signals over to a command that has its own ways.
func endOnSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	asked, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-done:
			return
		case s := <-asked:
			signal.Reset(os.Interrupt, syscall.SIGTERM)
			cancel(signaled{s.(syscall.Signal)})
			select {
			case <-done:
			case <-time.After(grace):
				os.Exit(interruptedBy(s.(syscall.Signal)))
			}
		}
	}()
	return ctx, func() {
		signal.Stop(asked)
		close(done)
		cancel(nil)
	}
}

// signaled is why the context of a command has ended.
type signaled struct{ by syscall.Signal }

func (s signaled) Error() string { return s.by.String() }

// interruptedBy says so and returns the exit code for it.
func interruptedBy(s syscall.Signal) int {
	fmt.Fprintln(os.Stderr, "titan: interrupted")
	return 128 + int(s)
}
