import FoundationEssentials
import Glibc
import StreamProtocol

/// The daemon's clients, from `$clients`.
struct ClientTable {
  private let snapshot: ClientsSnapshot

  init(json: [UInt8]) throws(Stop) {
    do {
      snapshot = try JSONDecoder().decode(ClientsSnapshot.self, from: Data(json))
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the clients cannot be read")
    }
  }

  /// A header, and a line for each subscription and each stream that a client publishes to.
  /// - Parameter time: the time of the snapshot, in microseconds since the Unix epoch.
  func text(at time: UInt64?) -> String {
    let header = ["CLIENT", "USER", "PID", "COMMAND", "PROTOCOL", "AGE", "SENT", "STREAM", "CREDIT", "LAG"]
    var lines = [header]
    for client in snapshot.clients {
      let age = client.since.flatMap { since in time.map { $0 > since ? $0 - since : 0 } }
      let fixed = [
        String(client.id), client.token ?? client.user.map(Self.name) ?? client.address ?? "-",
        client.process.map { String($0) } ?? "-", client.command ?? "-", client.protocol,
        Quantity.age(microseconds: age), Quantity.byteRate(Double(client.bytesOut)),
      ]
      var rows: [[String]] = (client.subscriptions ?? []).map {
        [
          $0.map == true ? "\($0.stream) (map)" : $0.stream, $0.credit.map { String($0) } ?? "unlimited",
          String($0.lag),
        ]
      }
      rows += (client.publishes ?? []).map { ["\($0) (publishes)", "-", "-"] }
      if let more = client.more { rows.append(["and \(more) more", "-", "-"]) }
      lines += (rows.isEmpty ? [["-", "-", "-"]] : rows).map { fixed + $0 }
    }
    let others = snapshot.others.map { "and \($0) other client\($0 == 1 ? "" : "s"), with less lag\n" }
    return Columns.text(lines) + (others ?? "")
  }

  private static func name(of user: UInt32) -> String {
    unsafe getpwuid(user).map { unsafe String(cString: $0.pointee.pw_name) } ?? String(user)
  }
}
