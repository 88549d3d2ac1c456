// Package chat is the agent: it holds conversations whose tools live on the device it is talking to. A message starts a
// turn; in a turn the model speaks and asks for tools until it has nothing left to ask for.
//
// It imports agent with its rooms, and registry. The APIs see Agent (chat.go); Engine is the one implementation. Start
// reading at Engine in engine.go; loop.go is what all turns have in common, turn.go a turn of a conversation that is
// kept, complete.go one whose caller keeps it.
package chat
