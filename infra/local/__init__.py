"""The local cloud: one command that plays AWS's part on a loopback port, and nothing else.

    __main__      the command: options, the launcher, the last sentence
    launcher      starts and ends emulator, model and app process, restarts the app when it dies
    options, endpoint, state    what the user chose; where the data plane is; the folder that is kept between runs
    emulator, keeper            the data plane as a child process that never outlives its launcher
    resources     creates table, queues and bucket from infra/resources.json
    app_process   the one process that listens on the port: gateway, pumps and the handlers of app.py
    gateway, routes, sockets, management    HTTP and websockets -> raw Lambda events
    events        the shapes of those events, as AWS sends them
    lambdas       calls a handler as Lambda does: context, remaining time, who is busy
    queue_pump, stream_pump, ticker, patterns    queue, stream and schedule -> raw Lambda events

It must not know anything inside `chalicelib`: settings go to it by environment, events to the handlers of `app.py`.
It guarantees that every socket it opens is on 127.0.0.1 and that no process is left when it ends.
"""
