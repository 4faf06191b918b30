package checkpoint

import (
	"fmt"
	"regexp"
	"strconv"
)

// The names in a checkpoint folder:
//
//	step-00000100                       a checkpoint
//	.titan-step-00000100-<nonce>.tmp    being written
//	.titan-step-00000100-<nonce>.old    committed, being replaced by one of the same step
//	.titan-step-00000100-<nonce>.trash  being removed
//	.titan-lock                         held by the run that writes here
//
// and in a checkpoint:
//
//	shard-00003-001.safetensors         file 1 of process 3
//	process-00003.json                  what process 3 wrote; gone once merged
//	manifest.json
//	COMMIT.pending                      becomes COMMIT as the last act
const (
	lockName     = ".titan-lock"
	manifestName = "manifest.json"
	pendingName  = "COMMIT.pending"
	commitName   = "COMMIT"
)

type nameKind int

const (
	otherName nameKind = iota
	stepName
	tempName
	oldName
	trashName
)

func stepDir(step int) string { return fmt.Sprintf("step-%08d", step) }

func shardName(process, i int) string {
	return fmt.Sprintf("shard-%05d-%03d.safetensors", process, i)
}

func partialName(process int) string { return fmt.Sprintf("process-%05d.json", process) }

// workDir returns the name of a directory that is not a checkpoint (any more).
func workDir(step int, nonce string, kind nameKind) string {
	return fmt.Sprintf(".titan-%s-%s.%s", stepDir(step), nonce, map[nameKind]string{tempName: "tmp", oldName: "old", trashName: "trash"}[kind])
}

var (
	stepPattern = regexp.MustCompile(`^step-(\d{8,18})$`)
	workPattern = regexp.MustCompile(`^\.titan-step-(\d{8,18})-[0-9a-f]+\.(tmp|old|trash)$`)
)

// parseName is the reverse of stepDir and workDir.
func parseName(name string) (nameKind, int) {
	kind, digits := otherName, ""
	if m := stepPattern.FindStringSubmatch(name); m != nil {
		kind, digits = stepName, m[1]
	} else if m := workPattern.FindStringSubmatch(name); m != nil {
		digits = m[1]
		kind = map[string]nameKind{"tmp": tempName, "old": oldName, "trash": trashName}[m[2]]
	}
	step, err := strconv.Atoi(digits)
	if err != nil || kind == stepName && stepDir(step) != name {
		return otherName, 0 // such as step-000000100, which we never write
	}
	return kind, step
}
