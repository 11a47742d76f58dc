import Glibc
import StreamRuntime
import StreamServer
import Systemd

/// Rejects the clients of passed sockets for a second, because the daemon will not start.
///
/// A client that waits on such a socket makes the service manager start the daemon again as soon as it has ended.
/// Without a response the starts would reach StartLimitBurst= at once, and the manager would close the socket. With
/// this response each client receives an error, and there is at most one start a second while clients connect.
///
/// - Parameters:
///   - path: the main file of the configuration.
///   - summary: the first error of the configuration, for clients that may read its files.
func refuseClients(from sockets: [PassedDescriptors.Listener], of path: String, _ summary: String) {
  guard !sockets.isEmpty, let loop = try? EventLoop(name: "streamd") else { return }
  let refused = RefusedConnections(on: loop)
  let sentence = "streamd cannot start: its configuration has errors"
  let details = "\(sentence): \(summary.escapedForTerminal); see streamd --check \(path.escapedForTerminal)"
  let mayAllRead = ConfigurationText.mayAllRead(filesAt: path)
  let listeners = sockets.map { socket in
    Listener(
      OwnedDescriptor(socket.descriptor), on: loop,
      accepted: { socket in
        let user = PeerCredentials(of: socket.raw)?.user
        let mayRead = user.map { mayAllRead || $0 == 0 || $0 == geteuid() } == true
        refused.refuse(socket, mayRead ? details : sentence, reason: .notConfigured)
      },
      paused: { _ in })
  }
  for listener in listeners { listener.start() }
  _ = loop.schedule(after: .seconds(1)) {
    refused.close()  // answers the clients that have sent part of a request
    loop.stop()
  }
  loop.run()
}
