package llo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Code is the scheduled code of one kernel or fusion.
type Code struct {
	// Bundles are in the order of their addresses.
	Bundles []Bundle
	regions map[int]int    // the first bundle of each region
	values  map[string]int // numbers of what instructions compute
}

// Bundle is a group of instructions that are issued together.
type Bundle struct {
	// Matrix says that the matrix unit multiplies.
	Matrix bool
	// Waits says that it may wait for a copy of a block of the kernel's arrays.
	Waits bool
	// Branches says that it jumps to region Target, or may.
	Branches bool
	Target   int
	ends     bool // a region ends here
	ops      []op
}

// What is looked for in the text.
var (
	branchWord = []byte("sbr.rel")
	targetWord = []byte("target = $region")
	waitWord   = []byte("pipeline-emitter-dma-wait")
	startWord  = []byte("Start region ")
	emptyWord  = []byte("Start/End empty region ")
	endWord    = []byte("End region ")
)

// Read reads the text of a "final_bundles" file of the compiler.
func Read(r io.Reader) (*Code, error) {
	c := &Code{regions: map[int]int{}, values: map[string]int{}}
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := lines.ReadBytes('\n') // of any length
		if len(line) > 0 {
			if e := c.line(line); e != nil {
				return nil, e
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("llo: %w", err)
		}
	}
	if len(c.Bundles) == 0 {
		return nil, errors.New("llo: there are no bundles in it")
	}
	for k, b := range c.Bundles {
		if _, ok := c.regions[b.Target]; b.Branches && !ok {
			return nil, fmt.Errorf("llo: bundle %#x jumps to region %d, which begins nowhere", k, b.Target)
		}
	}
	return c, nil
}

// line adds a line: a bundle, or the rest of the comments of the one before.
func (c *Code) line(s []byte) error {
	if at, ok := address(s); ok {
		if at != len(c.Bundles) {
			return fmt.Errorf("llo: bundle %#x follows %#x", at, len(c.Bundles)-1)
		}
		c.Bundles = append(c.Bundles, Bundle{ops: c.instructions(s)})
	} else if len(c.Bundles) == 0 {
		return nil // before the code
	}
	b := &c.Bundles[len(c.Bundles)-1]
	for _, o := range b.ops {
		b.Matrix = b.Matrix || o.class == multiplies
	}
	b.Waits = b.Waits || bytes.Contains(s, waitWord)
	if _, rest, ok := bytes.Cut(s, branchWord); ok {
		_, rest, ok = bytes.Cut(rest, targetWord)
		n, digits := number(rest)
		if !ok || !digits {
			return fmt.Errorf("llo: bundle %#x jumps, and does not say where to", len(c.Bundles)-1)
		}
		b.Branches, b.Target = true, n
	}
	for _, word := range [][]byte{startWord, emptyWord} {
		for rest := s; ; {
			var ok bool
			if _, rest, ok = bytes.Cut(rest, word); !ok {
				break
			}
			if n, ok := number(rest); ok {
				c.regions[n] = len(c.Bundles) - 1
			}
		}
	}
	b.ends = b.ends || bytes.Contains(s, endWord)
	return nil
}

// address reads "  0x1f PF: ", with which a bundle begins.
func address(s []byte) (int, bool) {
	head, _, ok := bytes.Cut(s, []byte{':'})
	fields := bytes.Fields(head)
	if !ok || len(fields) == 0 || len(fields) > 2 || len(fields) == 2 && len(fields[1]) != 2 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(fields[0]), 0, 64)
	return int(n), err == nil
}

// number reads the digits that s begins with.
func number(s []byte) (int, bool) {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	x, err := strconv.Atoi(string(s[:n]))
	return x, err == nil
}
