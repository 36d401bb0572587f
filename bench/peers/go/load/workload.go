// Package load keeps so many appends in flight and times them, and watches what clients see when a
// leader is lost. Every program here is started as
//
//	program ID PEERS FOLDER WORKLOAD
//
// with PEERS a JSON object of addresses by id, and WORKLOAD a JSON object as in workload.py. What
// was measured goes to standard output, as one JSON object in a line.
package load

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Workload is appends of one size, so many at a time, for so long.
type Workload struct {
	BodyBytes int     `json:"body_bytes"`
	InFlight  int     `json:"in_flight"`
	WarmUpS   float64 `json:"warm_up_s"`
	Seconds   float64 `json:"seconds"`
}

// Task is what the command line asks of this process.
type Task struct {
	ID     string
	Peers  map[string]string
	Folder string
	Work   Workload
}

// FromArguments reads the command line; a wrong one ends the process.
func FromArguments() Task {
	if len(os.Args) != 5 {
		Give("usage: %s ID PEERS FOLDER WORKLOAD", os.Args[0])
	}
	task := Task{ID: os.Args[1], Folder: os.Args[3]}
	if err := json.Unmarshal([]byte(os.Args[2]), &task.Peers); err != nil {
		Give("peers: %v", err)
	}
	if err := json.Unmarshal([]byte(os.Args[4]), &task.Work); err != nil {
		Give("workload: %v", err)
	}
	return task
}

// IDs are the members' names, in order.
func (t Task) IDs() []string {
	ids := make([]string, 0, len(t.Peers))
	for id := range t.Peers {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

// Give ends the process with a line that says why.
func Give(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

// Print writes one JSON object as a line.
func Print(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		Give("cannot write: %v", err)
	}
}

// Meter takes down how long appends took while the measured time runs.
type Meter struct {
	open   atomic.Bool
	failed atomic.Int64
	lock   sync.Mutex
	took   []time.Duration
}

// Answered takes down one append that was acknowledged now.
func (m *Meter) Answered(began time.Time) {
	if !m.open.Load() {
		return
	}
	took := time.Since(began)
	m.lock.Lock()
	m.took = append(m.took, took)
	m.lock.Unlock()
}

// Failed takes down one append that was refused or not answered.
func (m *Meter) Failed() {
	if m.open.Load() {
		m.failed.Add(1)
	}
}

// Report waits for the warm-up, measures, and prints what came out.
func (m *Meter) Report(work Workload) {
	time.Sleep(time.Duration(work.WarmUpS * float64(time.Second)))
	m.took = make([]time.Duration, 0, 1<<20) // room, so that growing does not hold up the load
	began := time.Now()
	m.open.Store(true)
	time.Sleep(time.Duration(work.Seconds * float64(time.Second)))
	m.open.Store(false)
	elapsed := time.Since(began).Seconds()
	m.lock.Lock()
	defer m.lock.Unlock()
	sort.Slice(m.took, func(i, j int) bool { return m.took[i] < m.took[j] })
	result := map[string]any{
		"entries_per_s": float64(len(m.took)) / elapsed,
		"failed":        m.failed.Load(),
	}
	if len(m.took) > 0 {
		result["median_ms"] = m.took[len(m.took)/2].Seconds() * 1e3
		result["p99_ms"] = m.took[len(m.took)*99/100].Seconds() * 1e3
	}
	Print(result)
}
