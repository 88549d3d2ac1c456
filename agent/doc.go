// Package agent is what agents do with tools: one operation, Invoker.Invoke, behind every door of the gateway.
//
//	find the tool ─▶ before hooks ─▶ Tool.Execute ─▶ amending hooks ─▶ after hooks ─▶ record
//
// NewInvoker says which hooks run in which order. An agent does not know a remote tool from a local one: both are a Tool.
// Local tools are made by factories, once per agent session, and enabled by name in a Toolbox; a View is what one agent
// session may call at a moment, local and remote.
package agent
