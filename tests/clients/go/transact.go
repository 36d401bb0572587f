package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// A broker asks after six seconds, and once it has heard of the producer, which says so every
// thirty seconds.
const checkTime = 75 * time.Second

// asked says how the transaction of a message ends: by the rest of its number by four.
type asked struct {
	lock sync.Mutex
	keys map[string]bool
}

func (one *asked) ExecuteLocalTransaction(
	message *primitive.Message,
) primitive.LocalTransactionState {
	switch rest(message) {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (one *asked) CheckLocalTransaction(
	message *primitive.MessageExt,
) primitive.LocalTransactionState {
	one.lock.Lock()
	defer one.lock.Unlock()
	one.keys[message.GetKeys()] = true
	switch rest(&message.Message) {
	case 2:
		return primitive.CommitMessageState
	case 3:
		return primitive.RollbackMessageState
	}
	say("asked about %s, which has ended", message.GetKeys())
	return primitive.UnknowState
}

func (one *asked) count() int {
	one.lock.Lock()
	defer one.lock.Unlock()
	return len(one.keys)
}

func rest(message *primitive.Message) int {
	key := message.GetKeys()
	number, err := strconv.Atoi(key[strings.LastIndex(key, "-")+1:])
	must(err)
	return number % 4
}

// transact ends two messages of four at once, and the others when the broker asks; 0 if it asked
// about all of them.
func transact(words []string, count int, options []producer.Option) int {
	listener := &asked{keys: map[string]bool{}}
	made, err := rocketmq.NewTransactionProducer(listener, options...)
	must(err)
	must(made.Start())
	one := sender{topic: words[1], run: words[2], tags: []string{"red"}}
	failed := 0
	for number := 0; number < count; number++ {
		result, err := made.SendMessageInTransaction(context.Background(), one.message(number))
		if err != nil || result.Status != primitive.SendOK {
			say("message %d: %v %v", number, result, err)
			failed++
		}
	}
	late := time.Now().Add(checkTime)
	for listener.count() < count/2 && time.Now().Before(late) {
		time.Sleep(pauseAfterFailure)
	}
	failed += count/2 - listener.count()
	time.Sleep(time.Second) // the last answer is on its way
	must(made.Shutdown())
	say("%d of %d ended", count-failed, count)
	if failed > 0 {
		return 1
	}
	return 0
}
