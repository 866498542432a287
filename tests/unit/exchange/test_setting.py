"""What all exchanges share: under which terms a tenant's requests to a model go."""

import msgspec

from tests.in_process import Proxy


def test_no_more_models_are_remembered_than_a_bound() -> None:
    """Clients name them, as many and as long as they like."""
    setting = Proxy().setting
    tenant = setting.tenants.of({})
    for number in range(1100):
        setting.terms_of(tenant, "chat", f"model-{number}")
    setting.terms_of(tenant, "chat", "m" * 257)

    assert 1000 < len(setting.terms) <= 1024
    assert all(len(model) < 20 for _, _, model in setting.terms)


def test_a_setting_made_from_another_finds_its_own_terms() -> None:
    """So that a configuration read again goes for models that were asked for before."""
    setting = Proxy().setting
    tenant = setting.tenants.of({})
    assert setting.terms_of(tenant, "chat", "m") is setting.terms_of(tenant, "chat", "m")
    renewed = msgspec.structs.replace(setting, users=0)

    assert renewed.terms == {}
    assert setting.terms != {}
