package prepare

import (
	"fmt"
	"os"

	"github.com/cheggaaa/pb/v3"
	"github.com/mattn/go-isatty"
)

// Bar returns a function for Options.Progress that draws a progress bar on f,
// and one that ends it. Where f is no terminal both do nothing.
func Bar(f *os.File) (progress func(Progress), done func()) {
	if !isatty.IsTerminal(f.Fd()) {
		return func(Progress) {}, func() {}
	}
	bar := pb.New64(0).Set(pb.Bytes, true).SetWriter(f)
	return func(p Progress) {
			if !bar.IsStarted() {
				bar.SetTotal(p.TotalBytes).Start()
			}
			bar.Set("suffix", fmt.Sprintf(" %d documents, %d tokens", p.Documents, p.Tokens))
			bar.SetCurrent(p.Bytes)
		}, func() {
			if bar.IsStarted() {
				bar.Finish()
			}
		}
}
