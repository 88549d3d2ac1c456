// Package agent is what agents do with tools: one operation, Invoker.Invoke, behind every door of the gateway.
//
//	resolve the target ─▶ before hooks (name policy, custom, argument validation) ─▶ Tool.Execute ─▶ after hooks
//
// An agent does not know a remote tool from a local one: both are a Tool.
package agent
