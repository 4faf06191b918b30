package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// usage is what the process has used so far. The call cannot fail with this
// argument.
func usage() (u syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u
}

// cpuSeconds is the processor time of the process so far.
func cpuSeconds() float64 {
	u := usage()
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// peakRSS is the most memory that the process had resident, in bytes.
func peakRSS() float64 { return float64(usage().Maxrss) * 1024 }

// sinceStart is the age of the process in seconds, to the hundredth. Replacing
// the program (exec) does not make a process younger. Linux only; NaN elsewhere
// would be no JSON, so it is -1.
func sinceStart() float64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return -1
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return -1
	}
	// Field 22; the name, field 2, ends with the last parenthesis.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks, err := strconv.ParseFloat(fields[22-3], 64)
	if err != nil {
		return -1
	}
	var now float64
	if _, err := fmt.Sscan(string(uptime), &now); err != nil {
		return -1
	}
	const hertz = 100 // USER_HZ, on all of Linux's platforms
	return now - ticks/hertz
}

// loadAverage is that of the last minute.
func loadAverage() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	var x float64
	_, _ = fmt.Sscan(string(raw), &x)
	return x
}
