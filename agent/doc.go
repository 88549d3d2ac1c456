// Package agent calls tools for AI agents and for programs: one operation, Invoker.Invoke, behind every API of the
// gateway.
//
//	find the tool ─▶ before hooks ─▶ Tool.Execute ─▶ amending hooks ─▶ after hooks ─▶ record
//
// NewInvoker says which hooks run in which order. A model does not know a remote tool from a local one. A remote tool
// runs on a device. A local tool runs in the gateway: it is built in (agent/tools) or brought by the program that
// embeds the gateway. Local tools are made by factories, for each turn, and enabled by name in LocalTools; a ToolSet is
// what one turn may call at a moment, local and remote.
//
// It imports registry, agent/access/auth (who is asking) and agent/schema (arguments). Built on it: agent/chat (conversations,
// with agent/provider for language models), agent/tools (tools of the gateway), agent/chat/loopguard (a hook). Start
// reading at Invoker.Invoke in invoke.go; hooks are in hooks.go and amend.go.
package agent
