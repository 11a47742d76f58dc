import Fleet
import JetStream
import StreamProtocol
import Systemd

extension JetStreamOptions {
  init(_ cluster: Configuration.Cluster) {
    self.init(servers: cluster.servers, fleet: cluster.name, shardCount: cluster.shards)
    (replicaCount, bytesPerShard) = (cluster.replicas, cluster.shardBytes)
    switch cluster.login {
    case .creds(let creds): credentials = .credentials(creds.content)
    case .nkey(let publicKey, let seed): credentials = .nkey(publicKey: publicKey, seed: seed.content)
    case .user(let login): credentials = .password(user: login.user, password: login.password.content)
    case .token(let token): credentials = .token(token.content)
    case nil: break
    }
    authoritiesFile = cluster.authorities
    (certificateFile, keyFile) = (cluster.identity?.certificate, cluster.identity?.key)
    version = Version.description
  }
}

extension Journal.Entry {
  /// The journal entry of a fleet's report.
  init(_ report: FleetReport) {
    switch report {
    case .leads(let shard, let term):
      self.init(.fleetLeads, .info, "leads shard \(shard) of the fleet, term \(term)")
    case .follows(let shard): self.init(.fleetFollows, .notice, "no longer leads shard \(shard) of the fleet")
    case .missed(let shard):
      self.init(.fleetEventsMissed, .warning, "events of shard \(shard) were removed before this host had read them")
    case .newEpoch(let stream):
      self.init(
        .fleetEpoch, .warning, "the brokers have lost events: the ids of the stream continue above a gap",
        [.stream(stream)])
    case .conflict(let stream):
      self.init(
        .fleetConflict, .error, "the fleet has other events under ids that this host has used: they are left out",
        [.stream(stream)])
    case .damaged(let shard):
      self.init(.fleetDamaged, .error, "an entry of shard \(shard) of the fleet cannot be read, and is left out")
    case .newerVersion(let shard):
      self.init(
        .fleetUpgrade, .error, "shard \(shard) of the fleet is led by a later version: upgrade streamd on this host")
    }
  }
}
