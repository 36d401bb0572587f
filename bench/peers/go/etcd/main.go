// The clients of three etcd servers.
//
// PEERS are the servers' client addresses. With the id "failover" the clients watch for lost
// leaders, with any other the load goes to the server that leads.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"peers/load"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	setUpTimeout = 30 * time.Second
	connections  = 16
	// Each client writes so many keys in turn: the key space stays small, the log does not.
	keysOfAClient = 1000
	pageKeys      = 10_000
)

func connect(addresses ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: addresses, DialTimeout: setUpTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		load.Give("%v", err)
	}
	return client
}

// leader is the member that says of itself that it leads.
func leader(clients map[string]*clientv3.Client, task load.Task) string {
	for _, id := range task.IDs() {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		status, err := clients[id].Status(ctx, task.Peers[id])
		cancel()
		if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
			return id
		}
	}
	return ""
}

func main() {
	task := load.FromArguments()
	addresses := []string{}
	byID := map[string]*clientv3.Client{}
	for _, id := range task.IDs() {
		addresses = append(addresses, task.Peers[id])
		byID[id] = connect(task.Peers[id])
	}
	leads := ""
	for deadline := time.Now().Add(setUpTimeout); leads == ""; leads = leader(byID, task) {
		if time.Now().After(deadline) {
			load.Give("no leader within %v", setUpTimeout)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if task.ID == "failover" {
		watch(task, byID, addresses)
		return
	}
	run(task.Peers[leads], task.Work)
}

func run(address string, work load.Workload) {
	meter := &load.Meter{}
	clients := make([]*clientv3.Client, min(connections, work.InFlight))
	for each := range clients {
		clients[each] = connect(address)
	}
	value := strings.Repeat("v", work.BodyBytes)
	for worker := 0; worker < work.InFlight; worker++ {
		client := clients[worker%len(clients)]
		go func() {
			for turn := 0; ; turn++ {
				key := fmt.Sprintf("%d/%d", worker, turn%keysOfAClient)
				began := time.Now()
				if _, err := client.Put(context.Background(), key, value); err != nil {
					meter.Failed()
					time.Sleep(time.Millisecond)
					continue
				}
				meter.Answered(began)
			}
		}()
	}
	meter.Report(work)
}

func watch(task load.Task, byID map[string]*clientv3.Client, addresses []string) {
	clients := make([]*clientv3.Client, 4)
	for each := range clients {
		clients[each] = connect(addresses...)
	}
	value := strings.Repeat("v", task.Work.BodyBytes)
	load.Watch(task.Work.InFlight, load.Group{
		Leader: func() string { return leader(byID, task) },
		Append: func(ctx context.Context, client int, number uint64) error {
			key := make([]byte, 8)
			binary.BigEndian.PutUint64(key, number)
			_, err := clients[client%len(clients)].Put(ctx, string(key), value)
			return err
		},
		Stored: func(found func(uint64)) error {
			from := "\x00"
			for {
				page, err := clients[0].Get(context.Background(), from, clientv3.WithFromKey(),
					clientv3.WithKeysOnly(), clientv3.WithLimit(pageKeys))
				if err != nil {
					return err
				}
				for _, entry := range page.Kvs {
					found(binary.BigEndian.Uint64(entry.Key))
				}
				if !page.More {
					return nil
				}
				from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
			}
		},
	})
}
