import Glibc
import StreamRuntime
import StreamServer
import Systemd

/// The TCP sockets of `[server] listen`.
///
/// The service manager stores the sockets. During a restart or after a kill, clients that connect wait in the sockets'
/// queues. Confined to the main thread.
final class ListeningSockets {
  /// An address that cannot be listened on, as a sentence.
  struct Refusal: Error, CustomStringConvertible {
    let description: String

    fileprivate init(_ address: InternetAddress, _ error: SystemError) {
      let reason =
        switch error.code {
        case EADDRINUSE: "another process listens on it"
        case EADDRNOTAVAIL: "no interface of this machine has this address"
        case EACCES: "ports below 1024 require a privilege (CAP_NET_BIND_SERVICE)"
        case EPERM: "the unit does not allow it (SocketBindAllow=tcp:\(address.port))"
        case EAFNOSUPPORT:
          "the system or the unit (RestrictAddressFamilies=) has no \(address.isIPv6 ? "IPv6" : "IPv4")"
        default: "\(error)"
        }
      description = "cannot listen on \(address): \(reason)"
    }

    /// - Parameter fault: what is wrong with the directory of `path`, in which no file can be made.
    fileprivate init(_ path: String, without fault: String) {
      var directory = path[..<(path.lastIndex(of: "/") ?? path.startIndex)]
      // The first one that is missing.
      while let slash = directory.lastIndex(of: "/"), slash > directory.startIndex,
        unsafe access(String(directory[..<slash]), F_OK) != 0, errno == ENOENT
      {
        directory = directory[..<slash]
      }
      description = "cannot listen on \(path) (server.socket): the directory \(directory) \(fault)"
    }

    /// - Parameter path: is in use.
    fileprivate init(_ path: String) {
      var status = stat()
      let kind = unsafe lstat(path, &status) == 0 ? status.st_mode & S_IFMT : S_IFSOCK
      let reason =
        switch kind {
        case S_IFSOCK: "another process listens on it"
        case S_IFDIR: "it is a directory"
        default: "it is not a socket"
        }
      description = "cannot listen on \(path): \(reason)"
    }
  }

  /// Listens on the daemon's Unix socket, `server.socket`.
  static func listen(at path: String, mode: mode_t) throws -> OwnedDescriptor {
    do throws(SystemError) {
      return try UnixSocket.listen(at: path, mode: mode)
    } catch {
      switch error.code {
      case EADDRINUSE: throw Refusal(path)
      case ENOENT: throw Refusal(path, without: "does not exist")
      case EACCES: throw Refusal(path, without: "does not admit this user")
      default: throw error
      }
    }
  }

  private let server: StreamServer
  private let manager: ServiceManager
  /// The sockets of an earlier process, on which this one does not listen yet.
  private var taken: [InternetAddress: CInt] = [:]
  /// The sockets on which the server listens. The server owns them.
  private var sockets: [InternetAddress: CInt] = [:]
  /// The sockets that `open` has opened, and the sockets that are no longer wanted.
  private var pending: (opened: [InternetAddress: CInt], leaving: [InternetAddress: CInt]) = ([:], [:])

  private static let namePrefix = "listen-"

  init(_ server: StreamServer, _ manager: ServiceManager) { (self.server, self.manager) = (server, manager) }

  /// The number of the service manager's descriptors that are sockets.
  var storedCount: Int { sockets.count }

  /// Takes the sockets of an earlier process out of `stored`. Keeps those of these addresses, and closes the others.
  func take(from stored: inout [PassedDescriptors.Stored], for addresses: [InternetAddress]) {
    let mine = stored.filter { $0.name.hasPrefix(Self.namePrefix) }
    stored.removeAll { $0.name.hasPrefix(Self.namePrefix) }
    for socket in mine {
      if let address = addresses.first(where: { Self.name(of: $0) == socket.name }), taken[address] == nil {
        taken[address] = socket.descriptor
      } else {
        end(socket.descriptor)
        close(socket.descriptor)
        manager.removeStored(socket.name)
      }
    }
  }

  /// Listens on these addresses.
  func begin(_ addresses: [InternetAddress]) throws(Refusal) {
    for (address, socket) in taken { serve(address, OwnedDescriptor(socket)) }
    taken = [:]
    try open(addresses)
    apply()
  }

  /// Opens sockets for the addresses that have none. No connection is accepted there, and no socket is closed, before
  /// `apply`.
  func open(_ addresses: [InternetAddress]) throws(Refusal) {
    pending.leaving = sockets.filter { !addresses.contains($0.key) }
    for address in addresses where sockets[address] == nil {
      do throws(SystemError) {
        let leaving = pending.leaving.filter { $0.key.port == address.port }.map(\.value)
        pending.opened[address] = try TCPSocket.listen(on: address, inPlaceOf: leaving).release()
      } catch {
        discard()
        throw Refusal(address, error)
      }
    }
  }

  /// Listens on the sockets that were opened, and closes those that are no longer wanted.
  func apply() {
    for (address, socket) in pending.leaving {
      sockets[address] = nil
      end(socket)
      manager.removeStored(Self.name(of: address))
      server.stopListening(on: socket)
    }
    for (address, socket) in pending.opened {
      manager.store(socket, as: Self.name(of: address))
      serve(address, OwnedDescriptor(socket))
    }
    pending = ([:], [:])
  }

  /// Closes the sockets that were opened, instead of `apply`.
  func discard() {
    for socket in pending.opened.values { close(socket) }
    pending = ([:], [:])
  }

  /// Refuses clients from now on. They would otherwise wait in the queue of the manager's copy of the socket, where no
  /// process accepts them.
  private func end(_ socket: CInt) { shutdown(socket, CInt(SHUT_RDWR)) }

  private func serve(_ address: InternetAddress, _ socket: consuming OwnedDescriptor) {
    sockets[address] = socket.raw
    server.listen(on: socket)
  }

  /// The socket's name in the service manager, whose names have no colons.
  private static func name(of address: InternetAddress) -> String {
    namePrefix + address.description.replacing(":", with: "_")
  }
}
