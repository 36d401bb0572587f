// One member of a Dragonboat group; the one that leads makes the load in its own process.
package main

import (
	"io"
	"os"
	"time"

	"peers/load"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/statemachine"
)

const (
	shard = 1
	// Its proposal queue is full: the time until it is not counts as the append's.
	busyPause = 100 * time.Microsecond
)

// nothing is a state machine that does next to nothing.
type nothing struct{ entries uint64 }

func (n *nothing) Update(statemachine.Entry) (statemachine.Result, error) {
	n.entries++
	return statemachine.Result{Value: n.entries}, nil
}
func (n *nothing) Lookup(any) (any, error) { return n.entries, nil }
func (n *nothing) SaveSnapshot(io.Writer, statemachine.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}
func (n *nothing) RecoverFromSnapshot(io.Reader, []statemachine.SnapshotFile, <-chan struct{}) error {
	return nil
}
func (n *nothing) Close() error { return nil }

func main() {
	task := load.FromArguments()
	for _, part := range []string{"raft", "rsm", "transport", "dragonboat", "logdb", "grpc", "tan", "config", "settings"} {
		logger.GetLogger(part).SetLevel(logger.ERROR)
	}
	members := map[uint64]dragonboat.Target{}
	var own uint64
	for place, id := range task.IDs() {
		members[uint64(place+1)] = task.Peers[id]
		if id == task.ID {
			own = uint64(place + 1)
		}
	}
	settings := config.NodeHostConfig{
		NodeHostDir:    task.Folder,
		RTTMillisecond: 100,
		RaftAddress:    task.Peers[task.ID],
	}
	settings.Expert.LogDBFactory = tan.Factory // the faster of its two logs; both sync
	host, err := dragonboat.NewNodeHost(settings)
	if err != nil {
		load.Give("%v", err)
	}
	machine := func(uint64, uint64) statemachine.IStateMachine { return &nothing{} }
	replica := config.Config{
		ReplicaID: own, ShardID: shard, ElectionRTT: 10, HeartbeatRTT: 1, CheckQuorum: true,
	}
	if err := host.StartReplica(members, false, machine, replica); err != nil {
		load.Give("%v", err)
	}
	for {
		leader, _, known, _ := host.GetLeaderID(shard)
		if known && leader == own {
			break
		}
		if known {
			io.Copy(io.Discard, os.Stdin)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	run(host, task.Work)
}

type proposal struct {
	state *dragonboat.RequestState
	began time.Time
}

func run(host *dragonboat.NodeHost, work load.Workload) {
	meter := &load.Meter{}
	body := make([]byte, work.BodyBytes)
	session := host.GetNoOPSession(shard)
	room := make(chan struct{}, work.InFlight)
	waiting := make(chan proposal, work.InFlight)
	go func() {
		for {
			room <- struct{}{}
			began := time.Now()
			state, err := host.Propose(session, body, 10*time.Second)
			for err != nil {
				time.Sleep(busyPause)
				state, err = host.Propose(session, body, 10*time.Second)
			}
			waiting <- proposal{state, began}
		}
	}()
	go func() { // proposals are answered in their order
		for next := range waiting {
			answer := <-next.state.ResultC()
			if answer.Completed() {
				meter.Answered(next.began)
			} else {
				meter.Failed()
			}
			next.state.Release()
			<-room
		}
	}()
	meter.Report(work)
	os.Exit(0)
}
