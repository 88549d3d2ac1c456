// Package agent is what agents do with tools: one operation, Invoker.Invoke, behind every API of the gateway.
//
//	find the tool ─▶ before hooks ─▶ Tool.Execute ─▶ amending hooks ─▶ after hooks ─▶ record
//
// NewInvoker says which hooks run in which order. An agent does not know a remote tool from a local one: both are a
// Tool. Local tools are made by factories, once per agent session, and enabled by name in LocalTools; a ToolSet is what
// one agent session may call at a moment, local and remote.
//
// Rooms below it: auth (who is asking), schema (arguments), chat (conversations), provider (language models), builtin
// (tools of the gateway), loopguard (a hook). It imports registry and those. Start reading at Invoker.Invoke in
// invoker.go.
package agent
