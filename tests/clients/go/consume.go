package main

import (
	"context"
	"flag"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// What comes too much would come in this time.
const afterwards = 300 * time.Millisecond

type taker struct {
	lock   sync.Mutex
	run    string
	steady bool
	toFail int
	expect int
	keys   map[string]bool
	enough chan struct{}
}

// consume returns 0 once so many keys of the run have come.
// It prints "ready" when it has started, then one key a line; "again KEY" for a key that came before.
// Arguments: names topic group run [--expect N] [--tags "a || b"] [--seconds N] [--fail-first N]
// [--broadcast] [--orderly] [--steady] [--sql "n > 3"]
// [--credentials USER:SECRET]
// "--steady" goes on until the process is killed, and prints "took KEY MILLISECONDS QUEUE/OFFSET"
// for each message.
func consume(words []string) int {
	flags := flag.NewFlagSet("consume", flag.ExitOnError)
	expect := flags.Int("expect", 20, "")
	tags := flags.String("tags", "*", "")
	seconds := flags.Float64("seconds", 60, "")
	failFirst := flags.Int("fail-first", 0, "")
	broadcast := flags.Bool("broadcast", false, "")
	orderly := flags.Bool("orderly", false, "")
	steady := flags.Bool("steady", false, "")
	condition := flags.String("sql", "", "")
	signing := credentials(flags)
	must(flags.Parse(words[4:]))
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{words[0]})),
		consumer.WithGroupName(words[2]),
		consumer.WithCredentials(*signing),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(*orderly),
	}
	if *broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	must(err)
	taking := taker{
		run: words[3], steady: *steady, toFail: *failFirst, expect: *expect,
		keys: map[string]bool{}, enough: make(chan struct{}),
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: *tags}
	if *condition != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: *condition}
	}
	must(made.Subscribe(words[1], selector, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		if taking.takeAll(messages) {
			return consumer.ConsumeSuccess, nil
		}
		return consumer.ConsumeRetryLater, nil
	}))
	must(made.Start())
	say("ready")
	if *steady {
		select {}
	}
	select {
	case <-taking.enough:
	case <-time.After(time.Duration(*seconds * float64(time.Second))):
	}
	time.Sleep(afterwards)
	must(made.Shutdown())
	taking.lock.Lock()
	defer taking.lock.Unlock()
	say("%d of %d keys", len(taking.keys), *expect)
	if len(taking.keys) != *expect {
		return 2
	}
	return 0
}

// takeAll tells whether all of them count as consumed. The default is one message a call.
func (taking *taker) takeAll(messages []*primitive.MessageExt) bool {
	taking.lock.Lock()
	defer taking.lock.Unlock()
	all := true
	for _, message := range messages {
		all = taking.take(message) && all
	}
	return all
}

func (taking *taker) take(message *primitive.MessageExt) bool {
	key := strings.TrimSpace(message.GetKeys())
	if taking.steady {
		now := time.Now().UnixMilli()
		say("took %s %d %d/%d", key, now, message.Queue.QueueId, message.QueueOffset)
		return true
	}
	if taking.toFail > 0 {
		taking.toFail--
		say("failing %s", key)
		return false
	}
	if strings.HasPrefix(key, taking.run+"-") {
		if taking.keys[key] {
			say("again %s", key)
		} else {
			say("%s", key)
			taking.keys[key] = true
			if len(taking.keys) == taking.expect {
				close(taking.enough)
			}
		}
	}
	return true
}
