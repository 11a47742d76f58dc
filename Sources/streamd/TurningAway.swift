import StreamRuntime
import StreamServer
import Systemd

/// Tells the clients of passed sockets, for a second, that there will be no daemon.
///
/// Whoever waits on such a socket makes the service manager start the daemon again as soon as it has ended: without a
/// word to them as often as StartLimitBurst= allows, in a moment, after which the socket is closed. With it each of them
/// knows, and there is one start a second at most, for as long as somebody comes.
func turnClientsAway(from sockets: [PassedDescriptors.Listener]) {
  guard !sockets.isEmpty, let loop = try? EventLoop(name: "streamd") else { return }
  let listeners = sockets.map { socket in
    Listener(
      OwnedDescriptor(socket.descriptor), on: loop,
      accepted: { StreamServer.turnAway($0, "streamd cannot start: its configuration has errors") },
      paused: { _ in })
  }
  for listener in listeners { try? listener.start() }
  _ = loop.schedule(after: .seconds(1)) { loop.stop() }
  loop.run()
}
