"""A device's tools as native tools of other libraries.

Each module imports its library when it is used: ``openai``, ``anthropic``, ``langchain``, ``openai_agents``,
``pydantic_ai``. All take the same arguments: a client, the target (session, device, user, labels) and a timeout in
seconds for each call. Built-in tools of the gateway belong to them only without a target.

A call that fails does not raise in an agent: the model reads the error, which says whether the tool ran.
"""
