@testable import streamd

extension Configuration.Source {
  static var publish: Self { Self(Configuration.Publish()) }
  static func timer(_ timer: Configuration.Timer) -> Self { Self(timer) }
  static func http(_ http: Configuration.HTTP) -> Self { Self(http) }
  static func webSocket(_ socket: Configuration.WebSocket) -> Self { Self(socket) }
  static func socket(_ socket: Configuration.Socket) -> Self { Self(socket) }
  static func serial(_ serial: Configuration.Serial) -> Self { Self(serial) }
  static func exec(_ exec: Configuration.Exec) -> Self { Self(exec) }
  static func peer(_ peer: Configuration.Peer) -> Self { Self(peer) }
  static func journal(_ journal: Configuration.JournalEntries) -> Self { Self(journal) }
  static func streams(_ derived: Configuration.Derived) -> Self { Self(derived) }
}
