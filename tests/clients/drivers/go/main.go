// Do what lines of standard input ask for with the Go client of RocketMQ 5. The words are those of
// tests/clients/driver.py.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// message is one to send, or one that came.
type message struct {
	Number     int               `json:"number"`
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        *string           `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      *string           `json:"group"`
	Lite       *string           `json:"lite"`
	At         int64             `json:"at,omitempty"`
	ID         string            `json:"id"`
	Attempt    int32             `json:"attempt"`
}

type subscription struct {
	Topic string `json:"topic"`
	Tag   string `json:"tag"`
	SQL   string `json:"sql"`
}

type question struct {
	Answer        int            `json:"answer"`
	Do            string         `json:"do"`
	Name          string         `json:"name"`
	Endpoints     string         `json:"endpoints"`
	TLS           bool           `json:"tls"`
	User          string         `json:"user"`
	Secret        string         `json:"secret"`
	Topics        []string       `json:"topics"`
	Transactional bool           `json:"transactional"`
	Group         string         `json:"group"`
	Subscriptions []subscription `json:"subscriptions"`
	WaitS         int            `json:"wait_s"`
	Messages      []message      `json:"messages"`
	AtOnce        bool           `json:"at_once"`
	Message       message        `json:"message"`
	End           string         `json:"end"`
	Topic         string         `json:"topic"`
	Lite          string         `json:"lite"`
	Handle        string         `json:"handle"`
	Most          int32          `json:"most"`
	InvisibleS    int            `json:"invisible_s"`
	Number        int            `json:"number"`
}

type told map[string]any

var (
	lock     sync.Mutex
	received []*rmq.MessageView
	clients  = map[string]any{}
)

func tell(what told) {
	line, _ := json.Marshal(what)
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(string(line))
}

func client(name string) any {
	lock.Lock()
	defer lock.Unlock()
	return clients[name]
}

func keep(name string, one any) {
	lock.Lock()
	defer lock.Unlock()
	clients[name] = one
}

func shown(view *rmq.MessageView) message {
	lock.Lock()
	received = append(received, view)
	number := len(received) - 1
	lock.Unlock()
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	var lite *string
	if name := view.GetLiteTopic(); name != "" {
		lite = &name
	}
	return message{
		Number: number, Topic: view.GetTopic(), Body: base64.StdEncoding.EncodeToString(view.GetBody()),
		Tag: view.GetTag(), Keys: keys, Properties: view.GetProperties(), Group: view.GetMessageGroup(),
		Lite: lite, ID: view.GetMessageId(), Attempt: view.GetDeliveryAttempt(),
	}
}

// event is a message with what it is.
func event(kind string, name string, view *rmq.MessageView) {
	line, _ := json.Marshal(shown(view))
	what := told{}
	_ = json.Unmarshal(line, &what)
	what["event"], what["name"] = kind, name
	tell(what)
}

func number(view *rmq.MessageView, name string) int {
	value, _ := strconv.Atoi(view.GetProperties()[name])
	return value
}

func configuration(asked question) *rmq.Config {
	rmq.EnableSsl = asked.TLS
	return &rmq.Config{
		Endpoint: asked.Endpoints, ConsumerGroup: asked.Group,
		Credentials: &credentials.SessionCredentials{AccessKey: asked.User, AccessSecret: asked.Secret},
	}
}

func filters(asked question) map[string]*rmq.FilterExpression {
	all := map[string]*rmq.FilterExpression{}
	for _, one := range asked.Subscriptions {
		switch {
		case one.SQL != "":
			all[one.Topic] = rmq.NewFilterExpressionWithType(one.SQL, rmq.SQL92)
		case one.Tag != "":
			all[one.Topic] = rmq.NewFilterExpression(one.Tag)
		default:
			all[one.Topic] = rmq.SUB_ALL
		}
	}
	return all
}

func messageOf(asked message) (*rmq.Message, error) {
	body, err := base64.StdEncoding.DecodeString(asked.Body)
	if err != nil {
		return nil, err
	}
	made := &rmq.Message{Topic: asked.Topic, Body: body}
	if asked.Tag != nil {
		made.SetTag(*asked.Tag)
	}
	made.SetKeys(asked.Keys...)
	for name, value := range asked.Properties {
		made.AddProperty(name, value)
	}
	if asked.Group != nil {
		made.SetMessageGroup(*asked.Group)
	}
	if asked.Lite != nil {
		made.SetLiteTopic(*asked.Lite)
	}
	if asked.At != 0 {
		made.SetDelayTimestamp(time.UnixMilli(asked.At))
	}
	return made, nil
}

func producer(asked question) error {
	options := []rmq.ProducerOption{rmq.WithTopics(asked.Topics...)}
	if asked.Transactional {
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{
			Check: func(view *rmq.MessageView) rmq.TransactionResolution {
				event("check", asked.Name, view)
				switch view.GetProperties()["check"] {
				case "commit":
					return rmq.COMMIT
				case "rollback":
					return rmq.ROLLBACK
				}
				return rmq.UNKNOWN
			},
		}))
	}
	made, err := rmq.NewProducer(configuration(asked), options...)
	if err != nil {
		return err
	}
	keep(asked.Name, made)
	return made.Start()
}

func simple(asked question) error {
	made, err := rmq.NewSimpleConsumer(
		configuration(asked),
		rmq.WithSimpleAwaitDuration(time.Duration(asked.WaitS)*time.Second),
		rmq.WithSimpleSubscriptionExpressions(filters(asked)),
	)
	if err != nil {
		return err
	}
	keep(asked.Name, made)
	return made.Start()
}

func listener(name string) rmq.PushConsumerOption {
	deliveries := map[string]int{}
	var counting sync.Mutex
	listen := func(view *rmq.MessageView) rmq.ConsumerResult {
		counting.Lock()
		deliveries[view.GetMessageId()]++
		count := deliveries[view.GetMessageId()]
		counting.Unlock()
		event("message", name, view)
		time.Sleep(time.Duration(number(view, "hold")) * time.Millisecond)
		if count <= number(view, "fail") {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	return rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: listen})
}

func push(asked question) error {
	made, err := rmq.NewPushConsumer(
		configuration(asked),
		rmq.WithPushAwaitDuration(20*time.Second),
		rmq.WithPushSubscriptionExpressions(filters(asked)),
		listener(asked.Name),
	)
	if err != nil {
		return err
	}
	keep(asked.Name, made)
	return made.Start()
}

func lite(asked question) error {
	made, err := rmq.NewLitePushConsumer(
		configuration(asked),
		rmq.NewLitePushConsumerConfig(asked.Topic, 30*time.Second),
		rmq.WithPushAwaitDuration(20*time.Second),
		listener(asked.Name),
	)
	if err != nil {
		return err
	}
	keep(asked.Name, made)
	return made.Start()
}

func problem(err error) told {
	what := told{"error": err.Error(), "code": nil}
	if status, ok := rmq.AsErrRpcStatus(err); ok {
		what["code"] = status.GetCode()
	}
	return what
}

func receiptOf(receipts []*rmq.SendReceipt, err error) told {
	if err != nil {
		return problem(err)
	}
	return told{"id": receipts[0].MessageID, "recall": receipts[0].RecallHandle}
}

func send(asked question) told {
	sender := client(asked.Name).(rmq.Producer)
	receipts := make([]told, len(asked.Messages))
	var all sync.WaitGroup
	for at, one := range asked.Messages {
		made, err := messageOf(one)
		switch {
		case err != nil:
			receipts[at] = problem(err)
		case asked.AtOnce:
			all.Add(1)
			sender.SendAsync(context.Background(), made, func(_ context.Context, found []*rmq.SendReceipt, err error) {
				receipts[at] = receiptOf(found, err)
				all.Done()
			})
		default:
			receipts[at] = receiptOf(sender.Send(context.Background(), made))
		}
	}
	all.Wait()
	return told{"receipts": receipts}
}

func transact(asked question) (told, error) {
	sender := client(asked.Name).(rmq.Producer)
	made, err := messageOf(asked.Message)
	if err != nil {
		return nil, err
	}
	transaction := sender.BeginTransaction()
	receipts, err := sender.SendWithTransaction(context.Background(), made, transaction)
	if err != nil {
		return nil, err
	}
	switch asked.End {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return told{"id": receipts[0].MessageID}, err
}

func receive(asked question) (told, error) {
	invisible := time.Duration(asked.InvisibleS) * time.Second
	views, err := client(asked.Name).(rmq.SimpleConsumer).Receive(context.Background(), asked.Most, invisible)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == 40401 {
		err = nil // nothing came
	}
	messages := []message{}
	for _, view := range views {
		messages = append(messages, shown(view))
	}
	return told{"messages": messages}, err
}

func taken(at int) *rmq.MessageView {
	lock.Lock()
	defer lock.Unlock()
	return received[at]
}

func closed(asked question) error {
	switch one := client(asked.Name).(type) {
	case rmq.Producer:
		return one.GracefulStop()
	case rmq.SimpleConsumer:
		return one.GracefulStop()
	case rmq.PushConsumer:
		return one.GracefulStop()
	}
	return errors.New("no such client")
}

func done(asked question) (told, error) {
	switch asked.Do {
	case "producer":
		return told{}, producer(asked)
	case "simple":
		return told{}, simple(asked)
	case "push":
		return told{}, push(asked)
	case "lite":
		return told{}, lite(asked)
	case "subscribe":
		return told{}, client(asked.Name).(rmq.LitePushConsumer).SubscribeLite(asked.Lite)
	case "unsubscribe":
		return told{}, client(asked.Name).(rmq.LitePushConsumer).UnSubscribeLite(asked.Lite)
	case "send":
		return send(asked), nil
	case "transact":
		return transact(asked)
	case "recall":
		id, err := client(asked.Name).(rmq.Producer).Recall(context.Background(), asked.Topic, asked.Handle)
		return told{"id": id}, err
	case "receive":
		return receive(asked)
	case "ack":
		return told{}, client(asked.Name).(rmq.SimpleConsumer).Ack(context.Background(), taken(asked.Number))
	case "change":
		invisible := time.Duration(asked.InvisibleS) * time.Second
		return told{}, client(asked.Name).(rmq.SimpleConsumer).ChangeInvisibleDuration(taken(asked.Number), invisible)
	case "close":
		return told{}, closed(asked)
	}
	return nil, fmt.Errorf("the client has no %s", asked.Do)
}

func answer(asked question) {
	what, err := done(asked)
	if err != nil {
		what = problem(err)
	}
	what["answer"] = asked.Answer
	tell(what)
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		asked := question{}
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		go answer(asked)
	}
}
