package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Machine code (x86-64) of the GetPjrtApi of a bad plugin.
var (
	codeCrash = []byte{0x31, 0xc0, 0x89, 0x00}                                           // xor eax, eax; mov [rax], eax
	codeHang  = []byte{0xeb, 0xfe}                                                       // jmp itself
	codeExit  = []byte{0xb8, 0xe7, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05}                      // exit_group(0)
	codeNull  = []byte{0x31, 0xc0, 0xc3}                                                 // return NULL
	codeTable = []byte{0x48, 0x8d, 0x05, 0xf9, tableAt/256 - codeAt/256 - 1, 0, 0, 0xc3} // return the table
)

// Places in the library.
const (
	dynsymAt, dynstrAt, hashAt, codeAt = 0x200, 0x280, 0x2c0, 0x400
	dynamicAt, tableAt, libraryEnd     = 0x1000, 0x1800, 0x2000
)

// apiTable is the head of a function table that speaks version major.minor of
// the PJRT C API and has no functions.
func apiTable(size uint64, major, minor int32) []byte {
	return encode(size, uint64(0), uint64(24), uint64(0), major, minor)
}

func encode(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// writeLibrary makes a shared library that exports one function, symbol, with
// the given code; no C compiler is needed to test broken plugins.
func writeLibrary(t *testing.T, symbol string, code, table []byte) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the library is for linux/amd64")
	}
	names := "\x00" + symbol + "\x00"
	file := make([]byte, libraryEnd)
	copy(file, encode(elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 4,
	},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: dynamicAt, Memsz: dynamicAt, Align: 0x1000},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: dynamicAt, Vaddr: dynamicAt, Filesz: 0x1000, Memsz: 0x1000, Align: 0x1000},
		elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R | elf.PF_W), Off: dynamicAt, Vaddr: dynamicAt, Filesz: 96, Memsz: 96, Align: 8},
		elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W)},
	))
	copy(file[dynsymAt:], encode(elf.Sym64{},
		elf.Sym64{Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: codeAt, Size: uint64(len(code))}))
	copy(file[dynstrAt:], names)
	copy(file[hashAt:], encode(uint32(1), uint32(2), uint32(1), uint32(0), uint32(0))) // one bucket, two symbols
	copy(file[codeAt:], code)
	copy(file[dynamicAt:], encode(
		uint64(elf.DT_HASH), uint64(hashAt), uint64(elf.DT_SYMTAB), uint64(dynsymAt), uint64(elf.DT_SYMENT), uint64(24),
		uint64(elf.DT_STRTAB), uint64(dynstrAt), uint64(elf.DT_STRSZ), uint64(len(names)), uint64(elf.DT_NULL), uint64(0)))
	copy(file[tableAt:], table)
	path := filepath.Join(t.TempDir(), "library.so")
	require.NoError(t, os.WriteFile(path, file, 0o755))
	return path
}
