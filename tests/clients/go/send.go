package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	asyncTime         = 30 * time.Second
	pauseAfterFailure = 100 * time.Millisecond
)

type sender struct {
	producer rocketmq.Producer
	topic    string
	run      string
	size     int
	tags     []string
	pause    time.Duration
	tries    int
	level    int
}

// send sends keyed messages; 0 if every send succeeded.
// Arguments: names topic run sync|async|oneway|orderly|batch|transaction|steady
// [--count N] [--size N] [--tags a,b] [--pause SECONDS] [--tries N] [--delay-level N]
// [--credentials USER:SECRET].
// "transaction" commits the first of four messages and rolls back the second; of the others it says
// so when the broker asks.
// "steady" sends one message after the other until the process is killed, each until it is
// acknowledged, and prints "acked KEY MILLISECONDS" or "failed KEY MILLISECONDS REASON" for each
// attempt.
func send(words []string) int {
	flags := flag.NewFlagSet("send", flag.ExitOnError)
	count := flags.Int("count", 20, "")
	size := flags.Int("size", 0, "")
	tags := flags.String("tags", "red", "")
	pause := flags.Float64("pause", 0, "")
	tries := flags.Int("tries", 1, "")
	level := flags.Int("delay-level", 0, "")
	signing := credentials(flags)
	must(flags.Parse(words[4:]))
	mode := words[3]
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{words[0]})),
		producer.WithGroupName(words[2] + "-senders"),
		producer.WithCredentials(*signing),
	}
	if mode == "orderly" {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if mode == "transaction" {
		return transact(words, *count, options)
	}
	made, err := rocketmq.NewProducer(options...)
	must(err)
	must(made.Start())
	one := sender{
		made, words[1], words[2], *size, strings.Split(*tags, ","),
		time.Duration(*pause * float64(time.Second)), *tries, *level,
	}
	if mode == "steady" {
		one.sendSteadily()
	}
	messages := make([]*primitive.Message, *count)
	for number := range messages {
		messages[number] = one.message(number)
		if mode == "orderly" {
			messages[number].WithShardingKey(fmt.Sprint(number % 2))
		}
	}
	failed := one.sendAll(mode, messages)
	if mode == "oneway" {
		time.Sleep(time.Second) // nothing tells when the last one has left
	}
	must(made.Shutdown())
	say("%d of %d sent", *count-failed, *count)
	if failed > 0 {
		return 1
	}
	return 0
}

func (one *sender) message(number int) *primitive.Message {
	key := fmt.Sprintf("%s-%d", one.run, number)
	body := key
	if len(body) < one.size {
		body += strings.Repeat(".", one.size-len(body))
	}
	message := primitive.NewMessage(one.topic, []byte(body))
	message.WithKeys([]string{key}).WithTag(one.tags[number%len(one.tags)])
	message.WithProperty("n", fmt.Sprint(number))
	if one.level > 0 {
		message.WithDelayTimeLevel(one.level)
	}
	return message
}

// sendAll returns how many failed for good.
func (one *sender) sendAll(mode string, messages []*primitive.Message) int {
	switch mode {
	case "sync", "orderly":
		return one.oneByOne(messages, func(message *primitive.Message) error {
			return one.sendChecked(message)
		})
	case "oneway":
		return one.oneByOne(messages, func(message *primitive.Message) error {
			return one.producer.SendOneWay(context.Background(), message)
		})
	case "batch":
		if err := one.sendChecked(messages...); err != nil {
			say("%v", err)
			return len(messages)
		}
		return 0
	case "async":
		return one.atOnce(messages)
	}
	panic("no mode is called " + mode)
}

func (one *sender) sendChecked(messages ...*primitive.Message) error {
	result, err := one.producer.SendSync(context.Background(), messages...)
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("the broker answered %d", result.Status)
	}
	return err
}

// oneByOne sends each message, again after a failure.
func (one *sender) oneByOne(
	messages []*primitive.Message, attempt func(*primitive.Message) error,
) int {
	failed := 0
	for number, message := range messages {
		var err error
		for count := 0; count < one.tries; count++ {
			if err = attempt(message); err == nil {
				break
			}
			say("message %d, attempt %d: %v", number, count, err)
			time.Sleep(time.Second)
		}
		if err != nil {
			failed++
		}
		time.Sleep(one.pause)
	}
	return failed
}

func (one *sender) atOnce(messages []*primitive.Message) int {
	var sent atomic.Int64
	ended := make(chan struct{}, len(messages))
	for _, message := range messages {
		err := one.producer.SendAsync(
			context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				if err == nil && result.Status == primitive.SendOK {
					sent.Add(1)
				} else {
					say("%v %v", result, err)
				}
				ended <- struct{}{}
			},
			message,
		)
		must(err)
	}
	late := time.After(asyncTime)
	for range messages {
		select {
		case <-ended:
		case <-late:
			return len(messages) - int(sent.Load())
		}
	}
	return len(messages) - int(sent.Load())
}

func (one *sender) sendSteadily() {
	for number := 0; ; number++ {
		key := fmt.Sprintf("%s-%d", one.run, number)
		for {
			err := one.sendChecked(one.message(number))
			if err == nil {
				say("acked %s %d", key, time.Now().UnixMilli())
				break
			}
			say("failed %s %d %v", key, time.Now().UnixMilli(), err)
			time.Sleep(pauseAfterFailure)
		}
		time.Sleep(one.pause)
	}
}
