// The clients of three NATS servers: one stream in three copies, in files.
//
// PEERS are the servers' client addresses. With the id "failover" the clients watch for lost
// leaders, with any other the load goes to the server that leads the stream.
package main

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"peers/load"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	stream         = "LOG"
	subject        = "log"
	setUpTimeout   = 30 * time.Second
	connections    = 4
	reconnectPause = 20 * time.Millisecond
)

func connect(addresses ...string) *nats.Conn {
	connection, err := nats.Connect(
		"nats://"+strings.Join(addresses, ",nats://"),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectPause), nats.ReconnectJitter(0, 0),
	)
	if err != nil {
		load.Give("%v", err)
	}
	return connection
}

func open(connection *nats.Conn, options ...jetstream.JetStreamOpt) jetstream.JetStream {
	opened, err := jetstream.New(connection, options...)
	if err != nil {
		load.Give("%v", err)
	}
	return opened
}

// setUp makes the stream as soon as the servers let it, and waits until somebody leads it.
func setUp(js jetstream.JetStream) string {
	settings := jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject}, Replicas: 3, Storage: jetstream.FileStorage,
	}
	deadline := time.Now().Add(setUpTimeout)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_, err := js.CreateOrUpdateStream(ctx, settings)
		cancel()
		if name := leader(js); err == nil && name != "" {
			return name
		}
		if time.Now().After(deadline) {
			load.Give("no stream within %v: %v", setUpTimeout, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func leader(js jetstream.JetStream) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	found, err := js.Stream(ctx, stream)
	if err != nil || found.CachedInfo().Cluster == nil {
		return ""
	}
	return found.CachedInfo().Cluster.Leader
}

func main() {
	task := load.FromArguments()
	addresses := []string{}
	for _, id := range task.IDs() {
		addresses = append(addresses, task.Peers[id])
	}
	asking := open(connect(addresses...))
	leads := setUp(asking)
	if task.ID == "failover" {
		watch(task, asking, addresses)
		return
	}
	time.Sleep(500 * time.Millisecond) // the copies of a new stream still find one another
	run(connect(task.Peers[leads]), task.Work)
}

type publication struct {
	future jetstream.PubAckFuture
	began  time.Time
}

func run(connection *nats.Conn, work load.Workload) {
	// Of the library's limit only this program's own is to be felt.
	js := open(connection, jetstream.WithPublishAsyncMaxPending(2*work.InFlight))
	meter := &load.Meter{}
	body := make([]byte, work.BodyBytes)
	room := make(chan struct{}, work.InFlight)
	waiting := make(chan publication, work.InFlight)
	go func() {
		for {
			room <- struct{}{}
			began := time.Now()
			future, err := js.PublishAsync(subject, body)
			if err != nil {
				meter.Failed()
				<-room
				time.Sleep(time.Millisecond)
				continue
			}
			waiting <- publication{future, began}
		}
	}()
	go func() {
		for next := range waiting {
			select {
			case <-next.future.Ok():
				meter.Answered(next.began)
			case <-next.future.Err():
				meter.Failed()
			}
			<-room
		}
	}()
	meter.Report(work)
}

func watch(task load.Task, asking jetstream.JetStream, addresses []string) {
	clients := make([]jetstream.JetStream, connections)
	for each := range clients {
		clients[each] = open(connect(addresses...))
	}
	load.Watch(task.Work.InFlight, load.Group{
		Leader: func() string { return leader(asking) },
		Append: func(ctx context.Context, client int, number uint64) error {
			body := make([]byte, task.Work.BodyBytes)
			binary.BigEndian.PutUint64(body, number)
			_, err := clients[client%connections].Publish(ctx, subject, body, jetstream.WithRetryAttempts(0))
			return err
		},
		Stored: func(found func(uint64)) error { return stored(asking, found) },
	})
}

func stored(js jetstream.JetStream, found func(uint64)) error {
	ctx := context.Background()
	log, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	reader, err := log.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := reader.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for left := log.CachedInfo().State.Msgs; left > 0; left-- {
		message, err := messages.Next()
		if err != nil {
			return err
		}
		found(binary.BigEndian.Uint64(message.Data()))
	}
	return nil
}
