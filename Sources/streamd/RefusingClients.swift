import StreamRuntime
import StreamServer
import Systemd

/// Rejects the clients of passed sockets for a second, because the daemon will not start.
///
/// A client that waits on such a socket makes the service manager start the daemon again as soon as it has ended.
/// Without a response the starts would reach StartLimitBurst= at once, and the manager would close the socket. With
/// this response each client receives an error, and there is at most one start a second while clients connect.
func refuseClients(from sockets: [PassedDescriptors.Listener]) {
  guard !sockets.isEmpty, let loop = try? EventLoop(name: "streamd") else { return }
  let refused = RefusedConnections(on: loop)
  let listeners = sockets.map { socket in
    Listener(
      OwnedDescriptor(socket.descriptor), on: loop,
      accepted: { refused.refuse($0, "streamd cannot start: its configuration has errors") },
      paused: { _ in })
  }
  for listener in listeners { listener.start() }
  _ = loop.schedule(after: .seconds(1)) { loop.stop() }
  loop.run()
}
