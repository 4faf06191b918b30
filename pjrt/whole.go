package pjrt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// checkWhole returns an error for an ELF library that is shorter than its
// segments. The loader maps what is missing, and the process dies touching it.
// Anything else that is wrong with a file the loader finds by itself.
func checkWhole(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("pjrt: open plugin: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pjrt: open plugin: %w", err)
	}
	raw := make([]byte, binary.Size(elf.Header64{}))
	n, err := f.ReadAt(raw, 0)
	if !bytes.HasPrefix(raw[:n], []byte(elf.ELFMAG)) {
		return nil
	}
	need := int64(len(raw))
	if err == nil && elf.Class(raw[elf.EI_CLASS]) == elf.ELFCLASS64 && elf.Data(raw[elf.EI_DATA]) == elf.ELFDATA2LSB {
		var h elf.Header64
		if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, &h); err != nil {
			return fmt.Errorf("pjrt: open plugin: %w", err)
		}
		segments := make([]elf.Prog64, h.Phnum)
		size := int64(binary.Size(segments))
		need = int64(h.Phoff) + size
		if binary.Read(io.NewSectionReader(f, int64(h.Phoff), size), binary.LittleEndian, segments) == nil {
			for _, s := range segments {
				need = max(need, int64(s.Off+s.Filesz))
			}
		}
	}
	if st.Size() < need {
		return fmt.Errorf("pjrt: %s is truncated: it has %d bytes, its segments %d; install or copy it again", path, st.Size(), need)
	}
	return nil
}
