package load

import (
	"bufio"
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// An append that is not answered within attemptTimeout is tried again after retryPause.
const (
	attemptTimeout = 300 * time.Millisecond
	retryPause     = 5 * time.Millisecond
)

// Group is what the clients of a failover run need of a system.
type Group struct {
	// Leader names the member that leads, or nobody ("").
	Leader func() string
	// Append stores a body that begins with the number, as one of so many clients.
	Append func(ctx context.Context, client int, number uint64) error
	// Stored calls back with every number that is in the log.
	Stored func(found func(number uint64)) error
}

type failover struct {
	group    Group
	next     atomic.Uint64
	stopped  atomic.Bool
	faultAt  atomic.Pointer[time.Time]
	lock     sync.Mutex
	accepted map[uint64]bool
}

// Watch lets so many clients append, one at a time each, and answers lines on standard input:
//
//	leader   {"leader": "n1"}
//	fault    {"noted": true}, and {"acknowledged_anew": true} once an attempt that began after
//	         this line was read is acknowledged
//	stop     {"acknowledged": N, "lost": N}, after reading everything back
func Watch(clients int, group Group) {
	run := &failover{group: group, accepted: map[uint64]bool{}}
	var workers sync.WaitGroup
	for client := 0; client < clients; client++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			run.work(client)
		}()
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "leader":
			Print(map[string]any{"leader": group.Leader()})
		case "fault":
			Print(map[string]any{"noted": true})
			now := time.Now()
			run.faultAt.Store(&now)
		case "stop":
			run.stopped.Store(true)
			workers.Wait()
			run.verify()
			return
		}
	}
}

func (f *failover) work(client int) {
	for !f.stopped.Load() {
		number := f.next.Add(1)
		for !f.stopped.Load() {
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
			err := f.group.Append(ctx, client, number)
			cancel()
			if err == nil {
				f.acknowledged(number, began)
				break
			}
			time.Sleep(retryPause)
		}
	}
}

func (f *failover) acknowledged(number uint64, began time.Time) {
	fault := f.faultAt.Load()
	if fault != nil && began.After(*fault) && f.faultAt.CompareAndSwap(fault, nil) {
		Print(map[string]any{"acknowledged_anew": true})
	}
	f.lock.Lock()
	f.accepted[number] = true
	f.lock.Unlock()
}

func (f *failover) verify() {
	all := len(f.accepted)
	stored := 0
	err := f.group.Stored(func(number uint64) {
		stored++
		delete(f.accepted, number)
	})
	if err != nil {
		Give("reading everything back: %v", err)
	}
	Print(map[string]any{"acknowledged": all, "lost": len(f.accepted), "stored": stored})
}
