package compilecache

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// fileState tells versions of a file apart without reading it, and says when it
// last changed. The time of change (ctime) cannot be set by programs, so that a
// file put in place with its old date shows.
func fileState(st os.FileInfo) (string, time.Time) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}
	}
	changed := time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec))
	return fmt.Sprintf("%d bytes, inode %d of %d, modified %d, changed %d", st.Size(), s.Ino, s.Dev, st.ModTime().UnixNano(), changed.UnixNano()), changed
}
