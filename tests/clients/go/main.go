// Send or consume with the Go client. The first argument is "send" or "consume"; the files of these
// names tell what follows.
package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var printing sync.Mutex

// say prints a line, all of it at once.
func say(format string, values ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf(format+"\n", values...)
}

// must ends the program with 3 after an error that no scenario expects.
func must(err error) {
	if err != nil {
		say("%v", err)
		os.Exit(3)
	}
}

func main() {
	rlog.SetLogLevel("error")
	words := os.Args[2:]
	switch os.Args[1] {
	case "send":
		os.Exit(send(words))
	case "consume":
		os.Exit(consume(words))
	}
	say("neither send nor consume: %s", os.Args[1])
	os.Exit(2)
}
