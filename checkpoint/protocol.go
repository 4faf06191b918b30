package checkpoint

import (
	"encoding/json"
	"fmt"
	"path"
)

// The commit protocol decides what a save does next, without doing it: next
// returns an operation, done takes its outcome. The driver in save.go carries
// operations out; tests carry them out against every fault there is.
//
// Process 0 leads. The order that makes a checkpoint visible or absent:
//
//	leader     make the temporary directory
//	all        agree on its name and on what is saved      (exchange)
//	all        write and sync own shards
//	all        report                                      (exchange)
//	leader     write and sync manifest and pending marker, sync the directory
//	leader     move an earlier checkpoint of the same step aside, sync
//	leader     rename to the final name, sync
//	leader     rename COMMIT.pending to COMMIT, sync       ← from here on it is there
//	all        report                                      (exchange)
//	leader     remove what was moved aside
//
// Whatever fails before the arrow is taken back, newest first.

type opKind int

const (
	opExchange  opKind = iota // name: the phase
	opMkdir                   // name
	opShards                  // write this process's shards into name
	opPartial                 // write this process's partial manifest into name
	opManifest                // merge, and write manifest and pending marker into name
	opRename                  // name → to
	opSyncDir                 // name
	opRemoveAll               // name
)

type op struct {
	kind     opKind
	name, to string
}

// message is what processes tell each other in an exchange.
type message struct {
	Error   string `json:"error,omitempty"`
	Temp    string `json:"temp,omitempty"`    // from the leader: the temporary directory
	Content string `json:"content,omitempty"` // digest of what is being saved
	Partial string `json:"partial,omitempty"` // digest of the partial manifest
}

// action is an operation with what takes it back.
type action struct {
	op
	undo []op
}

type protocol struct {
	rank, size              int
	content                 string // digest of step, mesh and tensors
	temp, final, old, trash string // names; temp is learnt by all but the leader
	occupied                bool   // a committed checkpoint stands at final (leader)
	partial                 string // digest of this process's partial manifest
	partials                []string
	todo                    []action
	undo                    [][]op // groups, oldest first
	undoing                 bool
	committed               bool
	err                     error // why the save failed
	warn                    error // what went wrong once it was committed
}

// newProtocol returns the protocol of one process. Only the leader's names
// count, except final.
func newProtocol(rank, size int, content, temp, final, old, trash string, occupied bool) *protocol {
	p := &protocol{rank: rank, size: size, content: content, temp: temp, final: final, old: old, trash: trash, occupied: occupied}
	if p.leads() {
		p.plan(op{kind: opMkdir, name: temp}, op{kind: opRemoveAll, name: temp})
	}
	p.plan(op{kind: opExchange, name: phaseBegin})
	return p
}

const (
	phaseBegin   = "begin"
	phaseWritten = "written"
	phaseCommit  = "commit"
)

func (p *protocol) leads() bool { return p.rank == 0 }

func (p *protocol) plan(o op, undo ...op) { p.todo = append(p.todo, action{o, undo}) }

// planWrite follows the exchange that told all the temporary name.
func (p *protocol) planWrite() {
	p.plan(op{kind: opShards, name: p.temp})
	if p.size > 1 {
		p.plan(op{kind: opPartial, name: p.temp})
		p.plan(op{kind: opSyncDir, name: p.temp}) // the leader's sync may not cover other hosts
	}
	p.plan(op{kind: opExchange, name: phaseWritten})
}

// planCommit follows the exchange in which all reported their shards written.
func (p *protocol) planCommit() {
	root := op{kind: opSyncDir, name: "."}
	if p.leads() {
		p.plan(op{kind: opManifest, name: p.temp})
		p.plan(op{kind: opSyncDir, name: p.temp})
		if p.occupied {
			p.plan(op{opRename, p.final, p.old}, op{opRename, p.old, p.final}, root)
			p.plan(root)
		}
		p.plan(op{opRename, p.temp, p.final}, op{opRename, p.final, p.trash}, root, op{kind: opRemoveAll, name: p.trash})
		p.plan(root)
		p.plan(op{opRename, path.Join(p.final, pendingName), path.Join(p.final, commitName)})
		p.plan(op{kind: opSyncDir, name: p.final})
	}
	p.plan(op{kind: opExchange, name: phaseCommit})
}

// planRemove follows the commit.
func (p *protocol) planRemove() {
	if p.leads() && p.occupied {
		p.plan(op{opRename, p.old, p.trash}) // for readers, who must not see it in part
		p.plan(op{kind: opRemoveAll, name: p.trash})
	}
}

// next returns what to do now, and false when nothing is left to do.
func (p *protocol) next() (op, bool) {
	if len(p.todo) == 0 {
		return op{}, false
	}
	return p.todo[0].op, true
}

// message returns what to send in the exchange that next returned.
func (p *protocol) message() []byte {
	m := message{Content: p.content, Partial: p.partial}
	if p.leads() {
		m.Temp = p.temp
	}
	if p.err != nil {
		m.Error = truncate(p.err.Error())
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil // strings always encode
	}
	return raw
}

// truncate keeps messages within what a Group must carry.
func truncate(s string) string {
	if len(s) > 500 {
		return s[:500] + "…"
	}
	return s
}

// done takes the outcome of the operation that next returned: its error, and for
// an exchange the messages of all.
func (p *protocol) done(err error, replies [][]byte) {
	did := p.todo[0]
	p.todo = p.todo[1:]
	switch {
	case p.undoing:
		if err != nil {
			p.nextUndo(true)
			return
		}
		p.nextUndo(false)
	case did.kind == opExchange:
		p.exchanged(did.name, err, replies)
	case err != nil && p.committed:
		p.warn = err
		p.todo = nil
	case err != nil:
		p.fail(err)
	default:
		if did.undo != nil {
			p.undo = append(p.undo, did.undo)
		}
		if p.leads() && did.op == (op{kind: opSyncDir, name: p.final}) {
			p.committed = true
		}
	}
}

// fail gives up. The others learn of it in the next exchange.
func (p *protocol) fail(err error) {
	p.err = err
	for len(p.todo) > 0 && p.todo[0].kind != opExchange {
		p.todo = p.todo[1:]
	}
	if len(p.todo) == 0 {
		p.takeBack()
	}
}

// exchanged continues after an exchange.
func (p *protocol) exchanged(phase string, err error, replies [][]byte) {
	var all []message
	if err == nil {
		all, err = decodeMessages(replies, p.size)
	}
	if err == nil && p.err == nil {
		err = p.judge(phase, all)
	}
	switch {
	case p.committed: // the leader's checkpoint is there whatever the others say
		if err != nil {
			p.warn = fmt.Errorf("step is committed, but the processes did not all hear of it: %w", err)
		}
		p.planRemove()
	case p.err != nil:
		p.takeBack()
	case err != nil && phase == phaseCommit && len(all) == 0:
		p.err = fmt.Errorf("it is not known whether the checkpoint was committed: %w", err)
		p.takeBack()
	case err != nil:
		p.err = err
		p.takeBack()
	case phase == phaseBegin:
		p.planWrite()
	case phase == phaseWritten:
		p.planCommit()
	default:
		p.committed = true
	}
}

// judge returns what the messages of all say against going on.
func (p *protocol) judge(phase string, all []message) error {
	for i, m := range all {
		if m.Error != "" {
			return fmt.Errorf("process %d: %s", i, m.Error)
		}
		if m.Content != p.content {
			return fmt.Errorf("process %d is saving something else than process %d: another step, mesh or list of tensors", i, p.rank)
		}
	}
	switch phase {
	case phaseBegin:
		kind, _ := parseName(all[0].Temp)
		if kind != tempName {
			return fmt.Errorf("process 0 sent %q for the temporary directory", all[0].Temp)
		}
		p.temp = all[0].Temp
	case phaseWritten:
		p.partials = make([]string, len(all))
		for i, m := range all {
			p.partials[i] = m.Partial
		}
	}
	return nil
}

func decodeMessages(replies [][]byte, size int) ([]message, error) {
	if len(replies) != size {
		return nil, fmt.Errorf("%d of %d processes answered", len(replies), size)
	}
	all := make([]message, size)
	for i, r := range replies {
		if err := json.Unmarshal(r, &all[i]); err != nil {
			return nil, fmt.Errorf("the message of process %d: %w", i, err)
		}
	}
	return all, nil
}

// takeBack undoes what was done, newest first.
func (p *protocol) takeBack() {
	p.undoing = true
	p.todo = nil
	p.nextUndo(false)
}

// nextUndo goes on undoing. A group in which something failed is given up:
// its later operations are safe only after its earlier ones. Others still are.
func (p *protocol) nextUndo(failed bool) {
	if failed {
		p.todo = nil
	}
	for len(p.todo) == 0 && len(p.undo) > 0 {
		last := p.undo[len(p.undo)-1]
		p.undo = p.undo[:len(p.undo)-1]
		for _, o := range last {
			p.plan(o)
		}
	}
}
