"""The preset dictionary of event pages: what their JSON is made of, so that a page of two short events deflates well.

It is part of the stored format. Never change it: a new one gets a new version byte and this one stays for reading.
Deflate finds matches at the end of a dictionary cheapest, so the most common texts stand last.
"""

ONE = (
    b'["thread.forked",{"from_thread":"thr_","at_seq":["plan.updated",{"items":[{"id":"","text":"","state":"'
    b'["file.changed",{"path":"/","change":"created","modified","deleted"["artifact.created",{"artifact_id":"art_",'
    b'"name":"","content_type":"application/json","bytes":,"ref":"["artifact.delivered",{"artifact_id":"art_","to":"'
    b'["question.requested",{"question_id":"qst_","question":{"text":"["question.resolved",{"question_id":"qst_",'
    b'"outcome":"answered"["approval.requested",{"approval_id":"apr_","call_id":"","tool":"","arguments":{},'
    b'"arguments_sha256":"["approval.resolved",{"approval_id":"apr_","decision":"approve","reject","reason":"'
    b'["child.started",{"reference_id":"","kind":"","name":"","blocking":true["child.updated",{"reference_id":"",'
    b'"status":"["child.completed",{"reference_id":"","outcome":"["custom.["thread.terminated",{}["run.reconciling",'
    b'{"adopted":["run.waiting",{"reason":"awaiting_human","awaiting_children","awaiting_job","on":['
    b'["run.resumed",{"reason":"","on":["message.updated",{"message":{["message.deleted",{"message_id":"msg_'
    b'["message.reset",{"message_id":"msg_","reason":"execution_lost","superseded":true,"incomplete":true,"silent":true'
    b'["run.cancelled",{"reason":"aborted_by_user","terminated","finished_calls":[],"run_id":"run_'
    b'["run.failed",{"reason":"model_error","step_error","budget_exceeded","error":{"type":"","detail":"",'
    b'"retryable":false},"retryable":true}["tool.progress",{"call_id":"call_","progress":{'
    b'["reasoning.completed",{"message_id":"msg_","text":"["reasoning.delta",{"message_id":"msg_","text":"'
    b'["tool.started",{"call_id":"call_","name":"","arguments":{"["tool.completed",{"call_id":"call_","name":"",'
    b'"outcome":"error","refused","aborted","unknown","ok","result":{"ref":"sha256:","bytes":},"duration_ms":'
    b'{"type":"tool_call","call_id":"call_","name":"","arguments":{}}{"type":"tool_result","call_id":"call_",'
    b'"outcome":"ok","content":""}],"role":"tool"{"type":"file","path":"/","content_type":"text/plain","bytes":'
    b'["thread.created",{"agent":"assistant","arguments":{},"title":null,"tags":[],"user":null}'
    b'["thread.updated",{"title":"","tags":["["step.recorded",{"step":{"kind":"command","file","task","done",'
    b'"label":"","status":"completed"}}["message.queued",{"message":{"id":"msg_","thread_id":"thr_","run_id":null,'
    b'"role":"user","content":[{"type":"text","text":"hello"}],"silent":false,"metadata":{"queued":true},"created_at":17'
    b'["usage.updated",{"model":"offline:echo","input_tokens":0,"output_tokens":0,"cache_read_tokens":0,'
    b'"cost_usd":0.0,"cost_usd":null}["message.started",{"message_id":"msg_","role":"assistant"}'
    b'["message.delta",{"message_id":"msg_","text":" the  and  of  to  in  is "},'
    b'["thread.status",{"state":"running","since":17,"reason":"stop_on_response"}],["thread.status",{"state":"idle",'
    b'"since":17,"reason":null}],["run.queued",{"command_id":"cmd_","delivery":"join","enqueue"}],'
    b'["run.started",{"agent":"assistant","model":"offline:echo","version":"0.1.0"}],'
    b'["message.completed",{"message":{"id":"msg_","thread_id":"thr_","run_id":"run_","role":"assistant","content":['
    b'{"type":"text","text":""}],"silent":false,"metadata":{},"created_at":17}}],["run.completed",'
    b'{"reason":"stop_on_response","usage":{"input_tokens":,"output_tokens":,"cache_read_tokens":0},"cost_usd":0.0}]]]'
)
